// What the rules say about one node: who reaches it, and whom it reaches.

import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import type { Node } from "../../protocol/node.ts";
import { endsOf, sentenceOf, sideWords, trafficWords, type Rule } from "../access/rules.ts";
import { rulesOfNode } from "../access/rules-of-node.ts";
import { currentSlug } from "../contact/me.ts";
import { knownNodes } from "../nodes/node-list.ts";
import { useList } from "../contact/resource.ts";
import { pathOf } from "../frame/router.ts";
import { Panel } from "../ui/page.tsx";
import { Loading } from "../ui/parts.tsx";
import { Tag } from "../ui/tag.tsx";
import { rulesPath, useWords } from "./rule-words.ts";
import { plural } from "../words/numbers.ts";

export function Firewall({ node }: { node: Node }) {
  const slug = currentSlug.value ?? "";
  const { data: rules, error } = useList(rulesPath(slug));
  const { inbound, toPeers, outbound } = rulesOfNode(rules ?? [], node);
  const words = useWords(slug, rules, [...inbound, ...toPeers, ...outbound]);
  if (node.state === "revoked")
    return (
      <Panel title="Firewall" hasRoom={true}>
        <p class="quiet">It is revoked: nodes with the newest configuration refuse it.</p>
      </Panel>
    );
  if (words === undefined)
    return (
      <Panel title="Firewall" hasRoom={true}>
        <Loading error={error} />
      </Panel>
    );
  return (
    <>
      <RulesPanel
        title={`${["It", ...node.subnets].join(" and ")} may be reached by`}
        empty="Nothing may reach it."
        rules={inbound.map(words)}
        peerSide="from"
        actions={<a href={pathOf(slug, "access")}>Access</a>}
      />
      <RulesPanel
        title="May reach"
        empty="No node lets it in."
        rules={toPeers.map(words)}
        peerSide="to"
        actions={
          <a href={`${pathOf(slug, "access")}?from=${encodeURIComponent(node.name)}`}>
            May it reach another node?
          </a>
        }
      />
      <RulesPanel
        title="May send to"
        empty="It may send nothing."
        rules={outbound.map(words)}
        peerSide="to"
        beside={
          <span class="faint no-phone cut">
            a connection needs both: the sender may send, the receiver lets in
          </span>
        }
      />
    </>
  );
}

type RulesPanelProps = {
  title: string;
  /** The text without rules. */
  empty: string;
  rules: readonly Rule[];
  /** The side of the rules that is not this node. */
  peerSide: "from" | "to";
  actions?: ComponentChildren;
  beside?: ComponentChildren;
};

const RulesPanel = ({ title, empty, rules, peerSide, actions, beside }: RulesPanelProps) => (
  <Panel title={title} actions={actions} beside={beside}>
    {rules.length === 0 ? (
      <p class="in quiet">{empty}</p>
    ) : (
      <ul class="lines rule">
        {rules.map((rule) => (
          <RuleLine key={rule.id} rule={rule} peerSide={peerSide} />
        ))}
      </ul>
    )}
  </Panel>
);

/** The peer of a rule, and the traffic; the whole sentence is its title. */
function RuleLine({ rule, peerSide }: Pick<RulesPanelProps, "peerSide"> & { rule: Rule }) {
  const ends = endsOf(rule);
  const peer = ends[peerSide];
  /** This node's side: a network behind it is named, because the rule is about that alone. */
  const own = ends[peerSide === "from" ? "to" : "from"];
  const count = useCount(peer);
  return (
    <li title={sentenceOf(rule)}>
      <span class="no">{rule.id}</span>
      <span class="say">
        <Tag text={peer === "any" ? "all" : sideWords(peer).name} isAll={peer === "any"} /> on{" "}
        <Tag text={trafficWords(rule)} isPort={true} />
        {own.includes("/") ? (
          <>
            {" "}
            of <Tag text={own} />
          </>
        ) : null}
        {rule.description === "" ? null : <bdi class="quiet cut">{rule.description}</bdi>}
      </span>
      {count === undefined ? null : <small class="faint">{plural(count, "node")}</small>}
    </li>
  );
}

/** How many nodes a side has: of a group, or of all. Undefined for others, and while no page has read the list of nodes. */
function useCount(side: string): number | undefined {
  const { data, isWhole } = knownNodes(currentSlug.value ?? "");
  return useMemo(() => {
    if (data === undefined || !isWhole) return undefined;
    if (side === "any") return data.length;
    const [kind, name = ""] = side.split(/:(.*)/s);
    return kind === "group" ? data.filter(({ groups }) => groups.includes(name)).length : undefined;
  }, [data, isWhole, side]);
}
