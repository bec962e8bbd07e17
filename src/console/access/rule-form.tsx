// One rule as a sentence whose parts are picked or typed.

import { apiPath } from "../../api/endpoint.ts";
import { groupsApi } from "../../api/groups.ts";
import { useState } from "preact/hooks";
import { call } from "../contact/api.ts";
import type { ListedNode } from "../nodes/listed-nodes.ts";
import { useMemberNames } from "../activity/member-names.ts";
import { useNodes } from "../nodes/node-list.ts";
import { useProviderWords } from "../providers/provider-words.ts";
import { refresh, useList } from "../contact/resource.ts";
import { useAction } from "../ui/form.tsx";
import { Button, FormEnd } from "../ui/button.tsx";
import { Dialog } from "../ui/dialog.tsx";
import { Why } from "../ui/page.tsx";
import { Field, valueOf } from "../ui/field.tsx";
import { Failure } from "../ui/parts.tsx";
import type { Draft } from "./draft-state.ts";
import { edit } from "./draft.ts";
import { networksBehind } from "../../protocol/networks-behind.ts";
import { gatewayWords, peerOf, targetOf } from "./networks.ts";
import { Sentence } from "./sentence.tsx";
import { contentOf, endsOf, newId, portsFault, sentenceOf, sidesFor, withEnds, type Rule } from "./rules.ts";

/** What the form of a new rule begins with. */
const emptyRule: Rule = {
  id: 0,
  direction: "inbound",
  protocol: "tcp",
  ports: "any",
  peer: "",
  target: "",
  description: "",
};

/**
 * The side that was typed, as rules write it: `web` is the group or the node of this name, "all nodes" is `any`. A name that
 * is neither is a group that is to be created.
 */
export function toWord(typed: string, groups: readonly string[], nodes: readonly string[]): string {
  const text = typed.trim();
  if (/^(any|all|all (nodes|machines))$/i.test(text)) return "any";
  if (text === "" || text.includes("/") || /^(group|node|user|idp):/.test(text)) return text;
  return !groups.includes(text) && nodes.includes(text) ? `node:${text}` : `group:${text}`;
}

type KnownSides = Parameters<typeof sidesFor>[1] & {
  /** Whether the groups were read. */
  isRead: boolean;
};

/** All words that a side can have. */
export function useSides(slug: string): KnownSides {
  const known = useList(apiPath(groupsApi.list, { slug }, { page_size: "1000" })).data;
  return {
    isRead: known !== undefined,
    groups: (known ?? []).map(({ name }) => name),
    words: [...useProviderWords(slug).values()],
    emails: [...useMemberNames(slug).values()],
    nodes: (useNodes().data ?? []).map(({ name }) => name),
  };
}

/** The group that a side names and that does not exist. */
function missingGroup(typed: string, { isRead, groups, nodes }: KnownSides): string | undefined {
  const [kind, name = ""] = toWord(typed, groups, nodes).split(/:(.*)/);
  return isRead && kind === "group" && !groups.includes(name) ? name : undefined;
}

type Props = { rule: Rule | undefined; draft: Draft; close: () => void };

export function RuleForm({ rule, draft, close }: Props) {
  const [typed, setTyped] = useState<Rule>(rule ?? emptyRule);
  // Errors of the ports are shown after sending, not while the user types.
  const [isChecked, setChecked] = useState(false);
  const nodes = useNodes().data ?? [];
  const sides = useSides(draft.slug);
  const ends = endsOf(typed);
  const word = (side: string) => toWord(side, sides.groups, sides.nodes);
  const missing = [ends.from, ends.to].flatMap((each) => missingGroup(each, sides) ?? []);
  const named = withEnds(typed, { from: word(ends.from), to: word(ends.to) });
  const edited = { ...named, peer: peerOf(named.peer), target: targetOf(named.target) };
  const isLong = typed.description.length > 255;
  // `ruleNow`: the rule as it is now. `rule` is as it was when the dialog was opened: another user may have changed or deleted it since.
  const rules = draft.rules.value ?? draft.saved.value?.rules ?? [];
  const ruleNow = rules.find(({ id }) => id === rule?.id);
  const isForeign = rule !== undefined && (ruleNow && contentOf(ruleNow)) !== contentOf(rule);
  const submit = (event: Event) => {
    event.preventDefault();
    setChecked(true);
    if (isLong || missing.length > 0 || portsFault(typed.ports) !== undefined) return;
    const id = ruleNow?.id ?? newId(rules);
    if (ruleNow === undefined) edit(draft, (all) => [...all, { ...edited, id }]);
    else edit(draft, (all) => all.map((each) => (each.id === id ? edited : each)));
    close();
    requestAnimationFrame(() => document.getElementById(`rule-${id}`)?.scrollIntoView({ block: "nearest" }));
  };
  const side = (key: "from" | "to") => (
    <SidePicker
      label={key === "from" ? "From" : "To"}
      word={ends[key]}
      set={(text: string) => setTyped(withEnds(typed, { ...ends, [key]: text }))}
      sides={sides}
      // Only the peer of a rule may be `self`: From of an inbound rule, To of an outbound one.
      mayBeSelf={(key === "from") === (typed.direction === "inbound")}
      mayBeNetwork={true}
      isChecked={isChecked}
    />
  );
  return (
    <Dialog
      title={rule === undefined ? "Add a rule" : "Edit the rule"}
      hasUnsaved={contentOf(typed) !== contentOf(rule ?? emptyRule)}
      close={close}
    >
      <form onSubmit={submit}>
        {side("from")}
        <Field label="May">
          <select
            value={typed.direction}
            onChange={(event: Event) =>
              setTyped(
                withEnds(
                  { ...typed, direction: valueOf(event) === "outbound" ? "outbound" : "inbound" },
                  ends,
                ),
              )
            }
          >
            <option value="inbound">reach (the receiver lets it in)</option>
            <option value="outbound">send to (the sender lets it out)</option>
          </select>
        </Field>
        {side("to")}
        <TrafficFields
          rule={typed}
          set={(traffic) => setTyped({ ...typed, ...traffic })}
          fault={isChecked ? portsFault(typed.ports) : undefined}
        />
        <Field label="Description" errors={isLong ? ["Enter at most 255 characters."] : undefined}>
          <input
            value={typed.description}
            onInput={(event: Event) => setTyped({ ...typed, description: valueOf(event) })}
          />
        </Field>
        <SideHelp />
        {isForeign ? <Foreign rule={ruleNow} /> : null}
        {ends.from === "" || ends.to === "" ? null : <InWords rule={edited} nodes={nodes} />}
        {[...new Set(missing)].map((name) => (
          <NewGroup key={name} name={name} slug={draft.slug} />
        ))}
        <FormEnd cancel={close}>
          {rule === undefined
            ? "Add to the draft"
            : isForeign
              ? "Replace that in the draft"
              : "Change in the draft"}
        </FormEnd>
      </form>
    </Dialog>
  );
}

/** Shown when another user has changed the rule while the dialog was open. */
function Foreign({ rule }: { rule: Rule | undefined }) {
  const now = rule === undefined ? "It is deleted" : `It is now: ${sentenceOf(rule)} “${rule.description}”`;
  return (
    <div role="alert">
      <Why kind="info" icon="people" title="Another user has changed this rule.">
        <p>
          <bdi>{now}.</bdi>
        </p>
      </Why>
    </div>
  );
}

/** The rule as a sentence, with the networks behind nodes that it opens as well. */
function InWords({ rule, nodes }: { rule: Rule; nodes: readonly ListedNode[] }) {
  const behind = networksBehind([endsOf(rule).to], nodes);
  const more = behind.length === 0 ? "" : `, and the networks behind (${behind.join("; ")})`;
  return (
    <p role="status" class="detail">
      <Sentence rule={rule} />
      <bdi>{more}</bdi>
    </p>
  );
}

type Traffic = Pick<Rule, "protocol" | "ports">;
const protocols = ["any", "tcp", "udp", "icmp"] as const;
/** A newer control plane may send a protocol that this console does not know. */
export const protocolOf = (word: string) => protocols.find((each) => each === word) ?? "any";

type TrafficProps = { rule: Traffic; set(traffic: Traffic): void; fault: string | undefined };

export function TrafficFields({ rule, set, fault }: TrafficProps) {
  return (
    <div class="pair">
      <Field label="Protocol">
        <select
          value={rule.protocol}
          onChange={(event: Event) => {
            const protocol = protocolOf(valueOf(event));
            set({ ...rule, protocol, ports: protocol === "icmp" ? "any" : rule.ports });
          }}
        >
          <option value="any">any protocol</option>
          <option value="tcp">tcp</option>
          <option value="udp">udp</option>
          <option value="icmp">icmp (ping)</option>
        </select>
      </Field>
      <Field
        label="Ports"
        help="any (any port), 443, or 8000-8010"
        errors={fault === undefined ? undefined : [fault]}
      >
        <input
          required
          maxlength={11}
          pattern="any|[0-9]{1,5}(-[0-9]{1,5})?"
          disabled={rule.protocol === "icmp"}
          value={rule.ports}
          onInput={(event: Event) => set({ ...rule, ports: valueOf(event).trim() })}
        />
      </Field>
    </div>
  );
}

type SidePickerProps = {
  label: "From" | "To";
  word: string;
  set: (typed: string) => void;
  sides: KnownSides;
  mayBeSelf?: boolean;
  mayBeNetwork?: boolean;
  /** Whether the form was sent. */
  isChecked: boolean;
};

export function SidePicker({
  label,
  word,
  set,
  sides,
  mayBeSelf = false,
  mayBeNetwork = false,
  isChecked,
}: SidePickerProps) {
  const list = `sides-${label}`;
  const offered = sidesFor(word, sides, mayBeSelf);
  const missing = missingGroup(word, sides);
  // Do not offer a new group for the beginning of a node's name.
  const alike = missing === undefined ? [] : sides.nodes.filter((name) => name.startsWith(missing));
  return (
    <>
      <Field
        label={label}
        help={`A group, a node (with the networks behind it)${mayBeNetwork ? ", a network" : ""}, or any.`}
      >
        <input
          required
          maxlength={260}
          list={list}
          autocomplete="off"
          spellcheck={false}
          value={word}
          onInput={(event: Event) => set(valueOf(event))}
        />
        <datalist id={list}>
          {offered.map((each) => (
            <option key={each} value={each} />
          ))}
        </datalist>
      </Field>
      <Picks word={word} set={set} sides={sides} />
      <div class={isChecked ? "is-bad" : "limited"} role="status">
        {alike.length === 0 ? null : (
          <>
            Nodes:{" "}
            <bdi>
              {alike.slice(0, 5).join(", ")}
              {alike.length > 5 ? ", …" : ""}
            </bdi>
            .{" "}
          </>
        )}
        {missing === undefined ? null : (
          <>
            There is no group <bdi>{missing}</bdi>: create it, or name another.
          </>
        )}
      </div>
    </>
  );
}

const maxPicks = 6;

/** Groups to press, for a pointer: keys have the list of the field. */
function Picks({ word, set, sides: { groups, nodes } }: Pick<SidePickerProps, "word" | "set" | "sides">) {
  const chosen = toWord(word, groups, nodes);
  const isChosen = (name: string) => chosen === `group:${name}`;
  // All groups are offered once one is chosen, else those that have what was typed.
  const hasChosen = chosen === "any" || groups.some(isChosen);
  const fitting = (hasChosen ? groups : groups.filter((name) => name.includes(word.trim()))).toSorted(
    (one, other) => Number(isChosen(other)) - Number(isChosen(one)) || (one < other ? -1 : 1),
  );
  const shown = fitting.slice(0, maxPicks);
  const pick = (text: string, value: string, isOn: boolean) => (
    <button
      type="button"
      key={value}
      class="chip"
      tabindex={-1}
      aria-pressed={isOn}
      onClick={() => set(value)}
    >
      <bdi>{text}</bdi>
    </button>
  );
  return (
    <div class="picks">
      {pick("all nodes", "any", chosen === "any")}
      {shown.map((name) => pick(name, name, isChosen(name)))}
      {fitting.length > shown.length ? (
        <span class="faint">and {fitting.length - shown.length} more</span>
      ) : null}
    </div>
  );
}

/** Explains the words of a side that are needed less often. */
function SideHelp() {
  return (
    <details>
      <summary>More that From and To can name</summary>
      <dl>
        {sideHelp.map(([word, meaning]) => (
          <>
            <dt>
              <code>{word}</code>
            </dt>
            <dd>{meaning}</dd>
          </>
        ))}
      </dl>
      <p>{gatewayWords}</p>
    </details>
  );
}

const sideHelp = [
  ["user:EMAIL", "the nodes of a member"],
  ["idp:GROUP", "the nodes of the users in a group at a provider of identities"],
  ["self", "nodes with the same owner: in From where they may reach, in To where they may send"],
  ["192.168.5.0/24", "a network, such as one behind nodes"],
] as const;

/** After the fields, so that Tab after a typing error leads to the next field, not to this button. */
function NewGroup({ name, slug }: { name: string; slug: string }) {
  const { error, run } = useAction(async () => {
    await call(groupsApi.create, { slug }, { name });
    await refresh(apiPath(groupsApi.list, { slug }));
  });
  return (
    <>
      <p>
        <Button isSmall onClick={run}>
          Create the group <bdi>{name}</bdi>
        </Button>
      </p>
      {error?.fields["name"]?.map((sentence) => (
        <small class="is-bad" role="alert">
          {sentence}
        </small>
      ))}
      {error === undefined || error.fields["name"] !== undefined ? null : <Failure error={error} />}
    </>
  );
}
