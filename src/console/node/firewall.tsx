// What the rules say about one node: who reaches it, and whom it reaches.

import { type Rule as StoredRule, rulesApi } from "../../api/rules.ts";
import { apiPath } from "../../api/endpoint.ts";
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { countOf } from "../../base/quantities.ts";
import type { Node } from "../../protocol/node.ts";
import { Sentence } from "../access/sentence.tsx";
import { endsOf, namesOf, sentenceOf, sideWords, toRule, trafficWords, type Rule } from "../access/rules.ts";
import { namedIn, standingChange, standingOf } from "../access/standing.ts";
import { slug } from "../contact/me.ts";
import { emailsOf, membersPath } from "../activity/member-names.ts";
import { readNamed } from "../activity/named-nodes.ts";
import { knownNodes } from "../nodes/node-list.ts";
import { providerGroupsPath, wordsOf } from "../providers/provider-words.ts";
import { useList } from "../contact/resource.ts";
import { pathOf } from "../frame/router.ts";
import { Panel } from "../ui/page.tsx";
import { Failure, Loading } from "../ui/parts.tsx";
import { Tag } from "../ui/tag.tsx";

const rulesPath = (own: string) => apiPath(rulesApi.list, { slug: own }, { page_size: "1000" });

export function Firewall({ node }: { node: Node }) {
  const own = slug.value ?? "";
  const { data: rules, error } = useList(rulesPath(own));
  const { letsIn, letIn, letsOut } = standingOf(rules ?? [], node);
  const words = useWords(own, rules, [...letsIn, ...letIn, ...letsOut]);
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
        {error === undefined ? <Loading /> : <Failure error={error} />}
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
    <a href={`${pathOf(own, "access")}?from=${encodeURIComponent(node.name)}`}>May it reach another node?</a>
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
        <a href={pathOf(own, "access")}>Access</a>,
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
  const own = ends[other === "from" ? "to" : "from"];
  const count = useCount(ends[other]);
  return (
    <li title={sentenceOf(rule)}>
      <span class="no">{rule.id}</span>
      <span class="say">
        <Tag text={ends[other] === "any" ? "all" : name} isAll={ends[other] === "any"} /> on{" "}
        <Tag text={trafficWords(rule)} isPort={true} />
        {own.includes("/") ? (
          <>
            {" "}
            of <Tag text={own} />
          </>
        ) : null}
        {rule.description === "" ? null : <bdi class="quiet cut">{rule.description}</bdi>}
      </span>
      {count === undefined ? null : <small class="faint">{countOf(count, "node")}</small>}
    </li>
  );
}

/** How many nodes a side has, where the list of nodes was read. */
function useCount(side: string): number | undefined {
  const { data, isWhole } = knownNodes(slug.value ?? "");
  return useMemo(() => {
    if (data === undefined || !isWhole) return undefined;
    if (side === "any") return data.length;
    const [kind, name = ""] = side.split(/:(.*)/s);
    return kind === "group" ? data.filter(({ groups }) => groups.includes(name)).length : undefined;
  }, [data, isWhole, side]);
}

/**
 * `listed` in words; undefined until all names are known: a node without its name would be called deleted. `read`:
 * the rules that they are of; names are read again with them.
 */
function useWords(
  own: string,
  read: readonly StoredRule[] | undefined,
  listed: readonly StoredRule[],
): ((rule: StoredRule) => Rule) | undefined {
  const ids = namedIn(listed);
  const [known, know] = useState({ ids, names: namesOf([]) });
  useEffect(() => {
    let isOver = false;
    readNamed(own, ids).then(
      (nodes) => isOver || know({ ids, names: namesOf(nodes) }),
      // The rules are read again within 20 seconds.
      () => undefined,
    );
    return () => void (isOver = true);
  }, [own, read, ids.join()]);
  const { data: members } = useList(membersPath(own));
  const { data: groups } = useList(providerGroupsPath(own));
  const isWhole = ids.every((id) => known.ids.includes(id));
  if (read === undefined || members === undefined || groups === undefined || !isWhole) return undefined;
  const [emails, ofProviders] = [emailsOf(members), wordsOf(groups)];
  return (rule) => toRule(rule, known.names, emails, ofProviders);
}

type EffectsProps = { node: Node; groups: readonly string[]; subnets: readonly string[] };

/** Before a node's groups and networks are saved: the rules that begin and cease to be about it. */
export function Effects({ node, groups, subnets }: EffectsProps) {
  const own = slug.value ?? "";
  const { data: rules, error } = useList(rulesPath(own));
  const after = { ...node, groups: [...groups], subnets: [...subnets] };
  const { gains, loses } = standingChange(rules ?? [], node, after);
  // What reaches a node reaches the networks behind it.
  const opened = subnets.filter((network) => !node.subnets.includes(network));
  const opening = opened.length === 0 ? [] : standingOf(rules ?? [], after).letsIn;
  const closed = node.subnets.filter((network) => !subnets.includes(network));
  const closing = closed.length === 0 ? [] : standingOf(rules ?? [], node).letsIn;
  const changed = [gains, loses].flatMap(({ others, it }) => [...others, ...it]);
  const words = useWords(own, rules, [...changed, ...opening, ...closing]);
  const isChanged = [groups.join(), subnets.join()].join(" ") !== [node.groups, node.subnets].join(" ");
  if (error !== undefined) return <Failure error={error} />;
  const listed = (title: string, found: readonly StoredRule[], As: "ins" | "del") =>
    found.length === 0 || words === undefined ? null : (
      <>
        <p>{title}</p>
        <ul class="plain-list">
          {found.map((rule) => (
            <li key={rule.id}>
              <As>
                {As === "ins" ? "+" : "−"} <Sentence rule={words(rule)} />
              </As>
            </li>
          ))}
        </ul>
      </>
    );
  return (
    <div aria-live="polite">
      {isChanged && rules !== undefined && changed.length + opening.length + closing.length === 0 ? (
        <p class="quiet">No rule begins or ceases to be about it.</p>
      ) : null}
      {listed(`These rules will let others reach ${opened.join(", ")}, too:`, opening, "ins")}
      {listed(`These rules will no longer let others reach ${closed.join(", ")}:`, closing, "del")}
      {listed("Others will reach it by these rules, too:", gains.others, "ins")}
      {listed("It will reach others by these, too:", gains.it, "ins")}
      {listed("Others will no longer reach it by these:", loses.others, "del")}
      {listed("It will no longer reach others by these:", loses.it, "del")}
    </div>
  );
}
