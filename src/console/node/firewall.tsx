// What the rules say about one node: who reaches it, and whom it reaches.

import type { Rule as StoredRule } from "../../api/rules.ts";
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import type { Node } from "../../protocol/node.ts";
import { endsOf, sentenceOf, sideWords, trafficWords, type Rule } from "../access/rules.ts";
import { standingOf } from "../access/rules-of-node.ts";
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
  const { letsIn, letIn, letsOut } = standingOf(rules ?? [], node);
  const words = useWords(slug, rules, [...letsIn, ...letIn, ...letsOut]);
  if (node.state === "revoked")
    return (
      <Panel title="Firewall" hasRoom={true}>
        <p class="quiet">
          It is revoked: the rules are not about it. Nodes that have confirmed that refuse it.
        </p>
      </Panel>
    );
  if (words === undefined)
    return (
      <Panel title="Firewall" hasRoom={true}>
        <Loading error={error} />
      </Panel>
    );
  const part = (
    { title, other, empty }: { title: string; other: "from" | "to"; empty: string },
    listed: readonly StoredRule[],
    actions?: ComponentChildren,
    beside?: ComponentChildren,
  ) => (
    <Panel title={title} actions={actions} beside={beside}>
      {listed.length === 0 ? (
        <p class="in quiet">{empty}</p>
      ) : (
        <ul class="lines rule">
          {listed.map((rule) => (
            <RuleLine key={rule.id} rule={words(rule)} other={other} />
          ))}
        </ul>
      )}
    </Panel>
  );
  const ask = (
    <a href={`${pathOf(slug, "access")}?from=${encodeURIComponent(node.name)}`}>May it reach another node?</a>
  );
  return (
    <>
      {part(
        {
          title: `May be reached by${node.subnets.length === 0 ? "" : `, also for ${node.subnets.join(", ")}`}`,
          other: "from",
          empty: "Nothing may reach it.",
        },
        letsIn,
        <a href={pathOf(slug, "access")}>Access</a>,
      )}
      {part({ title: "May reach", other: "to", empty: "No node lets it in." }, letIn, ask)}
      {part(
        { title: "May send to", other: "to", empty: "It may send nothing." },
        letsOut,
        undefined,
        <span class="faint no-phone cut">
          a connection needs both: the sender may send, the receiver lets in
        </span>,
      )}
    </>
  );
}

/** The other side of a rule, and the traffic; the whole sentence is its title. */
function RuleLine({ rule, other }: { rule: Rule; other: "from" | "to" }) {
  const ends = endsOf(rule);
  const { name } = sideWords(ends[other]);
  const slug = ends[other === "from" ? "to" : "from"];
  const count = useCount(ends[other]);
  return (
    <li title={sentenceOf(rule)}>
      <span class="no">{rule.id}</span>
      <span class="say">
        <Tag text={ends[other] === "any" ? "all" : name} isAll={ends[other] === "any"} /> on{" "}
        <Tag text={trafficWords(rule)} isPort={true} />
        {slug.includes("/") ? (
          <>
            {" "}
            of <Tag text={slug} />
          </>
        ) : null}
        {rule.description === "" ? null : <bdi class="quiet cut">{rule.description}</bdi>}
      </span>
      {count === undefined ? null : <small class="faint">{plural(count, "node")}</small>}
    </li>
  );
}

/** How many nodes a side has, where the list of nodes was read. */
function useCount(side: string): number | undefined {
  const { data, isWhole } = knownNodes(currentSlug.value ?? "");
  return useMemo(() => {
    if (data === undefined || !isWhole) return undefined;
    if (side === "any") return data.length;
    const [kind, name = ""] = side.split(/:(.*)/s);
    return kind === "group" ? data.filter(({ groups }) => groups.includes(name)).length : undefined;
  }, [data, isWhole, side]);
}
