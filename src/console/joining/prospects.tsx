// What a new node gets: its address, and the nodes that it reaches and that reach it, by the present rules.

import { rulesApi } from "../../api/rules.ts";
import { apiPath } from "../../api/endpoint.ts";
import { useMemo } from "preact/hooks";
import { reachOf, rulesOfNode, type RuledNode } from "../access/rules-of-node.ts";
import { organization, currentSlug } from "../contact/me.ts";
import { useNodes } from "../nodes/node-list.ts";
import { useList } from "../contact/resource.ts";
import { pathOf } from "../frame/router.ts";
import { Panel } from "../ui/page.tsx";
import { plural } from "../words/numbers.ts";

type ProspectsProps = { groups: readonly string[]; ownerId: number | null; address: string | undefined };

/** What a node of these groups will reach by the present rules; what it reaches, once it has joined and its `address` is known. */
export function Prospects({ groups, ownerId, address }: ProspectsProps) {
  const slug = currentSlug.value ?? "";
  const { data: rules } = useList(apiPath(rulesApi.list, { slug }, { page_size: "1000" }));
  const { data: nodes, isWhole } = useNodes();
  const key = groups.join();
  const found = useMemo(() => {
    if (rules === undefined || nodes === undefined || !isWhole) return undefined;
    const asRuledNode = ({
      id,
      groups: all,
      subnets,
      ownerId: owner_id,
    }: (typeof nodes)[number]): RuledNode => ({
      id,
      groups: all,
      owner_groups: [],
      subnets,
      owner_id,
    });
    // No groups of the owner: a listed node has them in `groups`, and those of the newcomer are not known.
    const newcomer: RuledNode = {
      id: 0,
      groups: [...groups],
      owner_groups: [],
      subnets: [],
      owner_id: ownerId,
    };
    const others = nodes.filter(({ ip_address, state }) => ip_address !== address && state === "active");
    const { inbound, toPeers, outbound } = rulesOfNode(rules, newcomer);
    return {
      ...reachOf(rules, newcomer, others.map(asRuledNode)),
      rules: new Set([...inbound, ...toPeers, ...outbound]).size,
    };
  }, [rules, nodes, isWhole, key, ownerId, address]);
  return (
    <Panel title={address === undefined ? "What it gets" : "What it got"} hasRoom={true}>
      <dl class="facts">
        <dt>Address</dt>
        <dd>
          {address === undefined ? (
            <span>
              a free one of <span class="mono">{organization.value?.network}</span>
            </span>
          ) : (
            <span class="mono">{address}</span>
          )}
        </dd>
        {found === undefined ? null : (
          <>
            <dt>Reaches</dt>
            <dd>{plural(found.reaches, "node")}</dd>
            <dt>Reached by</dt>
            <dd>{plural(found.reachedBy, "node")}</dd>
            <dt>By</dt>
            <dd>
              <a href={pathOf(slug, "access")}>{plural(found.rules, "rule")}</a>
            </dd>
          </>
        )}
      </dl>
    </Panel>
  );
}
