// The saved tests of the policy: what must be reachable and what must not. An edit of the rules that breaks one is refused.

import { useState } from "preact/hooks";
import { org, send } from "../api.ts";
import { html } from "../html.ts";
import { useNodes } from "../node-list.ts";
import { useList } from "../resource.ts";
import { Choice, FormFailure, Text, useAction } from "../ui/form.ts";
import { Confirm, Dialog, FromTerminal, State } from "../ui/parts.ts";
import { load, type Draft, type Saved } from "./draft.ts";
import { networkFault } from "./networks.ts";
import { toWord } from "./rule-form.ts";
import { portsFault, sideWords, trafficWords } from "./rules.ts";
import { isTestAboutGone, testsText, type PolicyTest } from "./test-text.ts";

type Props = { draft: Draft; saved: Saved; mayEdit: boolean };
type Asked = { kind: "add" } | { kind: "delete"; test: PolicyTest } | undefined;

const states = {
  true: ["online", "passes"],
  false: ["attention", "fails"],
  null: ["away", "not decided"],
} as const;

export function PolicyTests({ draft, saved, mayEdit }: Props) {
  const [asked, ask] = useState<Asked>(undefined);
  const close = () => ask(undefined);
  const { list } = saved.policy.tests;
  const save = async (tests: readonly PolicyTest[]) => {
    await send("POST", org(draft.slug, "policy/apply/"), bodyOf(saved, tests));
    await load(draft);
  };
  return html`<section aria-labelledby="tests">
    <div class="tools">
      <h2 id="tests">Tests</h2>
      ${mayEdit ? html`<button type="button" onClick=${() => ask({ kind: "add" })}>Add a test</button>` : null}
    </div>
    ${
      list.length === 0
        ? html`<p class="quiet">
            None. A test says what must be reachable, or must not be. Rules that break it cannot be saved.
          </p>`
        : html`<table class="rules">
            <thead>
              <tr>
                <th scope="col">State</th>
                <th scope="col">Test</th>
                <th scope="col">${mayEdit ? "Edit" : ""}</th>
              </tr>
            </thead>
            <tbody>
              ${list.map((test) => {
                const [name, word] = states[`${test.passes}`];
                return html`<tr key=${JSON.stringify({ ...test, passes: true })}>
                  <td><${State} name=${name} word=${word} /></td>
                  <td>
                    <${TestSentence} test=${test} />
                    ${isTestAboutGone(test) ? html`<div class="limited">No machine, member or group of a provider of this name is left, and the next change of the tests deletes it.</div>` : null}
                  </td>
                  <td>
                    ${
                      mayEdit
                        ? html`<button
                            type="button"
                            class="small"
                            aria-label=${`Delete: ${wordsOf(test)}`}
                            onClick=${() => ask({ kind: "delete", test })}
                          >
                            Delete
                          </button>`
                        : null
                    }
                  </td>
                </tr>`;
              })}
            </tbody>
          </table>`
    }
    ${asked?.kind === "add" ? html`<${NewTest} draft=${draft} saved=${saved} save=${save} close=${close} />` : null}
    ${
      asked?.kind === "delete"
        ? html`<${Confirm}
            title="Delete this test?"
            action="Delete the test"
            effect=${html`<p><${TestSentence} test=${asked.test} />.</p>
              <p>Rules that break it can be saved then. Adding it again brings it back.</p>`}
            run=${() => save(list.filter((each) => !isSame(each, asked.test)))}
            close=${close}
          />`
        : null
    }
  </section>`;
}

/** The list may have been read again since the question was asked. */
const isSame = (one: PolicyTest, other: PolicyTest) => JSON.stringify(one) === JSON.stringify(other);

/** The rules, groups and the stored file stay. */
const bodyOf = (saved: Saved, tests: readonly PolicyTest[]) => ({
  policy: testsText(tests),
  keep_file: true,
  version: saved.policy.version,
});

const sideText = (word: string) => sideWords(word).before + sideWords(word).name;
const verbOf = ({ expect }: PolicyTest) => (expect === "accept" ? "must reach" : "must not reach");
const wordsOf = (test: PolicyTest) =>
  `${sideText(test.from)} ${verbOf(test)} ${sideText(test.to)} on ${trafficWords(test)}`;

function TestSentence({ test }: { test: PolicyTest }) {
  const side = (word: string) => {
    const { before, name } = sideWords(word);
    return html`${before}<strong><bdi>${name}</bdi></strong>`;
  };
  return html`<span
    >${side(test.from)} ${verbOf(test)} ${side(test.to)} on <strong>${trafficWords(test)}</strong></span
  >`;
}

const maxOffered = 50;
const expectations = [
  ["deny", "must not reach"],
  ["accept", "must reach"],
] as const;
const protocols = [
  ["tcp", "tcp"],
  ["udp", "udp"],
  ["icmp", "icmp (ping)"],
  ["any", "any protocol"],
] as const;

type NewTestProps = Omit<Props, "mayEdit"> & {
  save(tests: readonly PolicyTest[]): Promise<void>;
  close(): void;
};

function NewTest({ draft, saved, save, close }: NewTestProps) {
  const [test, set] = useState<PolicyTest>({
    expect: "deny",
    from: "",
    to: "",
    // Preset to one protocol, a test that forbids would leave the others open.
    protocol: "any",
    ports: "any",
    passes: null,
  });
  const [isChecked, check] = useState(false);
  const groups = (useList<{ name: string }>(org(draft.slug, "groups/?page_size=1000")).data ?? []).map(
    ({ name }) => name,
  );
  const machines = useNodes().data ?? [];
  const nodes = machines.map(({ name }) => name);
  const word = (typed: string) => toWord(typed, groups, nodes);
  const ports = test.protocol === "icmp" ? "any" : test.ports;
  const whole = { ...test, from: word(test.from), to: word(test.to), ports };
  const all = [...saved.policy.tests.list, whole];
  const fault = portsFault(ports);
  const { error, isRunning, run } = useAction(async () => {
    await save(all);
    close();
  });
  const submit = (event: Event) => {
    event.preventDefault();
    check(true);
    if (fault === undefined) void run();
  };
  const networksOf = (key: "from" | "to") => {
    const sentence = networkFault(whole[key], machines);
    return sentence === undefined ? undefined : [sentence];
  };
  const side = (key: "from" | "to", label: string) =>
    html`<${Text}
      label=${label}
      help=${key === "from" ? "A group, a machine, or any." : undefined}
      errors=${networksOf(key)}
      value=${test[key]}
      set=${(text: string) => set({ ...test, [key]: text })}
      control=${{ required: true, maxlength: 260, list: "test-sides", autocomplete: "off", spellcheck: false }}
    />`;
  const sides = ["any", ...groups.map((name) => `group:${name}`), ...nodes.map((name) => `node:${name}`)];
  const typed = [test.from, test.to].find((each) => each !== "" && !sides.includes(each)) ?? "";
  return html`<${Dialog} title="Add a test" close=${close}>
    <form onSubmit=${submit}>
      ${side("from", "From")}
      <${Choice}
        label="Expect"
        value=${test.expect}
        set=${(expect: string) =>
          set(
            expect === "accept"
              ? { ...test, expect: "accept", protocol: "tcp" }
              : { ...test, expect: "deny", protocol: "any" },
          )}
        choices=${expectations}
      />
      ${side("to", "To")}
      <datalist id="test-sides">
        ${sides
          .filter((each) => each.includes(typed))
          .slice(0, maxOffered)
          .map((each) => html`<option key=${each} value=${each}></option>`)}
      </datalist>
      <${TestTraffic} test=${{ ...test, ports }} set=${set} fault=${isChecked ? fault : undefined} />
      <${FormFailure} error=${error} />
      <div class="actions">
        <button class="primary" disabled=${isRunning}>Save the test</button>
        <button type="button" onClick=${close}>Cancel</button>
      </div>
      <${FromTerminal}
        command=${`agent admin policy apply ${draft.slug} FILE`}
        call=${`POST ${org(draft.slug, "policy/apply/")} ${JSON.stringify(bodyOf(saved, all))}`}
      />
    </form>
  <//>`;
}

type TestTrafficProps = { test: PolicyTest; set(test: PolicyTest): void; fault: string | undefined };

function TestTraffic({ test, set, fault }: TestTrafficProps) {
  return html`<div class="pair">
    <${Choice}
      label="on"
      value=${test.protocol}
      set=${(protocol: string) => set({ ...test, protocol: protocol as PolicyTest["protocol"] })}
      choices=${protocols}
    />
    <${Text}
      label="Ports"
      help="any (any port), 443, or 8000-8010"
      errors=${fault !== undefined ? [fault] : undefined}
      value=${test.ports}
      set=${(text: string) => set({ ...test, ports: text.trim() })}
      control=${{ required: true, maxlength: 11, disabled: test.protocol === "icmp" }}
    />
  </div>`;
}
