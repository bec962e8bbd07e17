// Before a node is changed: which rules begin and cease to be about it.

import type { Rule as StoredRule } from "../../api/rules.ts";
import type { Node } from "../../protocol/node.ts";
import { Sentence } from "../access/sentence.tsx";
import { standingChange, standingOf } from "../access/standing.ts";
import { currentSlug } from "../contact/me.ts";
import { useList } from "../contact/resource.ts";
import { Failure } from "../ui/parts.tsx";
import { rulesPath, useWords } from "./rule-words.ts";

type EffectsProps = { node: Node; groups: readonly string[]; subnets: readonly string[] };

/** Before a node's groups and networks are saved: the rules that begin and cease to be about it. */
export function Effects({ node, groups, subnets }: EffectsProps) {
  const slug = currentSlug.value ?? "";
  const { data: rules, error } = useList(rulesPath(slug));
  const after = { ...node, groups: [...groups], subnets: [...subnets] };
  const { gains, loses } = standingChange(rules ?? [], node, after);
  // What reaches a node reaches the networks behind it.
  const opened = subnets.filter((network) => !node.subnets.includes(network));
  const opening = opened.length === 0 ? [] : standingOf(rules ?? [], after).letsIn;
  const closed = node.subnets.filter((network) => !subnets.includes(network));
  const closing = closed.length === 0 ? [] : standingOf(rules ?? [], node).letsIn;
  const changed = [gains, loses].flatMap(({ others, it }) => [...others, ...it]);
  const words = useWords(slug, rules, [...changed, ...opening, ...closing]);
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
