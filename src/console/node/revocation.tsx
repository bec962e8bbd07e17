// Which nodes have confirmed that they refuse a revoked node, and which may still accept it.

import { nodesApi } from "../../api/nodes.ts";
import { apiPath } from "../../api/endpoint.ts";
import { useList } from "../contact/resource.ts";
import { AwaitedNodes } from "../nodes/awaited-nodes.tsx";
import { State } from "../ui/parts.tsx";

export function Revocation({ slug, id, name }: { slug: string; id: number; name: string }) {
  const path = apiPath(nodesApi.revocations, { slug }, { page_size: "1000", search: name });
  const report = useList(path).data?.find(({ node_id }) => node_id === id);
  if (report === undefined) return null;
  const { applied, total, waiting_for: waiting } = report;
  const unconfirmed = total - applied;
  if (unconfirmed === 0)
    return (
      <p>
        <State name="online" word={`All nodes refuse it: ${total} of ${total} have confirmed.`} />
      </p>
    );
  return (
    <>
      <p>
        {applied} of {total} nodes have confirmed that they refuse it. The others may accept it until they
        have applied the newest configuration.
      </p>
      <AwaitedNodes
        slug={slug}
        ids={waiting}
        count={unconfirmed}
        title={`Nodes that have not confirmed: ${unconfirmed}`}
      />
    </>
  );
}
