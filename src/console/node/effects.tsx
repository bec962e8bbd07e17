// Before a node is changed: which rules begin and cease to be about it.

import type { Rule as StoredRule } from "../../api/rules.ts";
import type { Node } from "../../protocol/node.ts";
import { Sentence } from "../access/sentence.tsx";
import { standingChange, rulesOfNode } from "../access/rules-of-node.ts";
import { currentSlug } from "../contact/me.ts";
import { useList } from "../contact/resource.ts";
import { Failure } from "../ui/parts.tsx";
import { rulesPath, useWords } from "./rule-words.ts";

/** `groups` and `subnets`: as they will be. */
type EffectsProps = { node: Node; groups: readonly string[]; subnets: readonly string[] };

export function Effects({ node, groups, subnets }: EffectsProps) {
  const slug = currentSlug.value ?? "";
  const { data: rules, error } = useList(rulesPath(slug));
  const after = { ...node, groups: [...groups], subnets: [...subnets] };
  const { gains, loses } = standingChange(rules ?? [], node, after);
  // What reaches a node reaches the networks behind it.
  const newNetworks = subnets.filter((network) => !node.subnets.includes(network));
  const intoNew = newNetworks.length === 0 ? [] : rulesOfNode(rules ?? [], after).inbound;
  const endedNetworks = node.subnets.filter((network) => !subnets.includes(network));
  const intoEnded = endedNetworks.length === 0 ? [] : rulesOfNode(rules ?? [], node).inbound;
  const ofNode = [gains, loses].flatMap(({ othersReachIt, itReaches }) => [...othersReachIt, ...itReaches]);
  const all = [...ofNode, ...intoNew, ...intoEnded];
  const words = useWords(slug, rules, all);
  const isChanged = groups.join() !== node.groups.join() || subnets.join() !== node.subnets.join();
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
      {isChanged && rules !== undefined && all.length === 0 ? (
        <p class="quiet">No rule starts or stops applying to it.</p>
      ) : null}
      {listed(`These rules will let others reach ${newNetworks.join(", ")}, too:`, intoNew, "ins")}
      {listed(`These rules will no longer let others reach ${endedNetworks.join(", ")}:`, intoEnded, "del")}
      {listed("Others will reach it by these rules, too:", gains.othersReachIt, "ins")}
      {listed("It will reach others by these, too:", gains.itReaches, "ins")}
      {listed("Others will no longer reach it by these:", loses.othersReachIt, "del")}
      {listed("It will no longer reach others by these:", loses.itReaches, "del")}
    </div>
  );
}
