// May A reach B, and which rule decides. The question is in the address, so that it can be sent to a colleague.

import { useEffect, useState } from "preact/hooks";
import { ApiError, org, send } from "../api.ts";
import { html } from "../html.ts";
import type { Machine } from "../machines.ts";
import { useNodes } from "../node-list.ts";
import { query, setQuery } from "../router.ts";
import { Failure, Field, FromTerminal, State, valueOf } from "../ui/parts.ts";
import { Between } from "./between.ts";
import type { Saved } from "./draft.ts";
import { quoted, type Rule } from "./rules.ts";
import { Sentence } from "./rule-table.ts";

type Verdict = { allowed: boolean; rule_id: number | null; reason: string };
const maxOffered = 50;
const none: readonly Machine[] = [];

export function Explainer({ saved, slug }: { saved: Saved; slug: string }) {
  const word = (key: string, otherwise = "") => query.value.get(key) ?? otherwise;
  const [from, to, protocol, port] = [word("from"), word("to"), word("protocol", "tcp"), word("port")];
  const { data: nodes = none } = useNodes();
  const idOf = (name: string) => nodes.find((node) => node.name === name)?.id;
  const [sender, receiver] = [idOf(from), idOf(to)];
  const isWhole =
    sender !== undefined && receiver !== undefined && (protocol === "icmp" || /^\d{1,5}$/.test(port));
  const body = {
    from: sender,
    to: receiver,
    protocol,
    ...(protocol === "icmp" ? {} : { port: Number(port) }),
  };
  const [answer, error] = useVerdict(slug, isWhole ? JSON.stringify(body) : undefined, saved);
  const set = (key: string) => (event: Event) => setQuery({ [key]: valueOf(event) });
  const rule = saved.rules.find(({ id }) => id === answer?.rule_id);
  useEffect(() => {
    // A link with a question leads to it, below the rules.
    if (query.peek().has("from")) document.getElementById("explainer")?.scrollIntoView();
  }, []);
  return html`<section aria-labelledby="explainer">
    <h2 id="explainer">May one machine reach another?</h2>
    <div class="question">
      <${NodePicker} label="From machine" name=${from} set=${set("from")} nodes=${nodes} />
      <${NodePicker} label="To machine" name=${to} set=${set("to")} nodes=${nodes} />
      <${Field} label="Protocol">
        <select value=${protocol} onChange=${set("protocol")}>
          <option value="tcp">tcp</option>
          <option value="udp">udp</option>
          <option value="icmp">icmp (ping)</option>
        </select>
      <//>
      <${Field} label="Port">
        <input
          inputmode="numeric"
          maxlength="5"
          disabled=${protocol === "icmp"}
          value=${protocol === "icmp" ? "" : port}
          onInput=${set("port")}
        />
      <//>
    </div>
    <div role="status">
      ${error === undefined ? null : html`<${Failure} error=${error} />`}
      ${answer === undefined ? null : html`<${Answer} answer=${answer} rule=${rule} />`}
      ${
        sender === undefined ||
        receiver === undefined ||
        sender === receiver ||
        (isWhole && answer === undefined)
          ? null
          : html`<${Between}
              saved=${saved}
              slug=${slug}
              from=${sender}
              to=${receiver}
              isAllowed=${isWhole ? answer?.allowed : undefined}
            />`
      }
    </div>
    ${
      isWhole
        ? html`<${FromTerminal}
            command=${`agent admin policy test ${slug} ${quoted(from)} ${quoted(to)} ${protocol === "icmp" ? "icmp" : `${protocol}/${port}`}`}
            call=${`POST ${org(slug, "firewall_rules/test/")} ${JSON.stringify(body)}`}
          />`
        : null
    }
  </section>`;
}

function Answer({ answer, rule }: { answer: Verdict; rule: Rule | undefined }) {
  return html`<p>
      <${State} name=${answer.allowed ? "online" : "attention"} word=${answer.allowed ? "yes" : "no"} />
      ${" "}<bdi>${answer.reason}</bdi>
    </p>
    ${
      rule === undefined
        ? null
        : html`<p>
            Rule ${rule.id} decides: <${Sentence} rule=${rule} />${" "}
            <button
              type="button"
              class="small"
              onClick=${() => {
                setQuery({ rule: String(rule.id), search: undefined });
                document.getElementById(`rule-${rule.id}`)?.scrollIntoView({ block: "center" });
              }}
            >
              Show it
            </button>
          </p>`
    }`;
}

/** Asked again when the rules change. `question`: the body of the request. */
function useVerdict(
  slug: string,
  question: string | undefined,
  saved: Saved,
): [Verdict | undefined, ApiError | undefined] {
  const [answer, setAnswer] = useState<Verdict | undefined>(undefined);
  const [error, fail] = useState<ApiError | undefined>(undefined);
  useEffect(() => {
    let isOver = false;
    fail(undefined);
    if (question === undefined) return setAnswer(undefined);
    const timer = setTimeout(() => {
      send<Verdict>("POST", org(slug, "firewall_rules/test/"), JSON.parse(question)).then(
        (verdict) => isOver || setAnswer(verdict),
        (failure: unknown) => {
          if (!(failure instanceof ApiError)) throw failure;
          if (isOver) return;
          setAnswer(undefined);
          fail(failure);
        },
      );
    }, 200);
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [slug, question, saved]);
  return [answer, error];
}

type NodePickerProps = {
  label: string;
  name: string;
  set: (event: Event) => void;
  nodes: readonly Machine[];
};

function NodePicker({ label, name, set, nodes }: NodePickerProps) {
  const list = label.replaceAll(" ", "-");
  const offered = nodes.filter((node) => node.name.includes(name)).slice(0, maxOffered);
  const isUnknown = name !== "" && nodes.length > 0 && offered.length === 0;
  return html`<${Field}
    label=${label}
    errors=${isUnknown ? ["There is no machine of this name."] : undefined}
  >
    <input list=${list} maxlength="255" autocomplete="off" spellcheck=${false} value=${name} onInput=${set} />
    <datalist id=${list}>
      ${offered.map((node) => html`<option key=${node.id} value=${node.name}></option>`)}
    </datalist>
  <//>`;
}
