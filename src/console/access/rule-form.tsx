// One rule as a sentence whose parts are picked or typed.

import { useState } from "preact/hooks";
import type { ListedNode } from "../nodes/listed-nodes.ts";
import { useNodes } from "../nodes/node-list.ts";
import { FormEnd } from "../ui/button.tsx";
import { Dialog } from "../ui/dialog.tsx";
import { Why } from "../ui/page.tsx";
import { Field, valueOf } from "../ui/field.tsx";
import type { Draft } from "./draft-state.ts";
import { edit } from "./draft.ts";
import { networksBehind } from "../../protocol/networks-behind.ts";
import { peerOf, targetOf, toSide } from "./sides.ts";
import { Sentence } from "./sentence.tsx";
import { newId } from "./rule-edits.ts";
import { contentOf, endsOf, portsFault, sentenceOf, withEnds, type Rule } from "./rules.ts";
import { useSides, missingGroup, SidePicker, SideHelp, NewGroup } from "./side-picker.tsx";

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

type Props = { rule: Rule | undefined; draft: Draft; close: () => void };

export function RuleForm({ rule, draft, close }: Props) {
  const [typed, setTyped] = useState<Rule>(rule ?? emptyRule);
  // Errors of the ports are shown after sending, not while the user types.
  const [isChecked, setChecked] = useState(false);
  const nodes = useNodes().data ?? [];
  const sides = useSides(draft.slug);
  // The two sides as the user types them: "web" or "all nodes". `edited` has them as rules write them.
  const ends = endsOf(typed);
  const sideOf = (side: string) => toSide(side, sides.groups, sides.nodes);
  const missing = [ends.from, ends.to].flatMap((each) => missingGroup(each, sides) ?? []);
  const named = withEnds(typed, { from: sideOf(ends.from), to: sideOf(ends.to) });
  const edited = { ...named, peer: peerOf(named.peer), target: targetOf(named.target) };
  const isLong = typed.description.length > 255;
  const rules = draft.rules.value ?? draft.saved.value?.rules ?? [];
  // As it is now: another user may have changed or deleted it since the dialog was opened with `rule`.
  const ruleNow = rules.find(({ id }) => id === rule?.id);
  const isChangedByOthers = rule !== undefined && (ruleNow && contentOf(ruleNow)) !== contentOf(rule);
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
      typed={ends[key]}
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
        {isChangedByOthers ? <ChangedByOthers rule={ruleNow} /> : null}
        {ends.from === "" || ends.to === "" ? null : <InWords rule={edited} nodes={nodes} />}
        {[...new Set(missing)].map((name) => (
          <NewGroup key={name} name={name} slug={draft.slug} />
        ))}
        <FormEnd cancel={close}>
          {rule === undefined
            ? "Add to the draft"
            : isChangedByOthers
              ? "Replace that in the draft"
              : "Change in the draft"}
        </FormEnd>
      </form>
    </Dialog>
  );
}

/** Shown when another user has changed the rule while the dialog was open. */
function ChangedByOthers({ rule }: { rule: Rule | undefined }) {
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
