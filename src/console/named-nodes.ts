// Names of machines that rules and events name by their numbers.

import { nodesApi } from "../api/nodes.ts";
import { apiPath } from "../api/endpoint.ts";
import type { Node } from "../protocol/node.ts";
import { getAll } from "./api.ts";

/** The API takes at most 200 ids. */
const maxIds = 200;

/** A deleted machine is in no answer. The API lists revoked machines, `isRevoked`, apart from the others. */
export async function readNamed(
  slug: string,
  ids: readonly number[],
  isRevoked = false,
): Promise<Pick<Node, "id" | "name">[]> {
  const parts = Array.from({ length: Math.ceil(ids.length / maxIds) }, (_, at) =>
    ids.slice(at * maxIds, (at + 1) * maxIds),
  );
  const revoked = isRevoked ? "true" : undefined;
  const found = await Promise.all(
    parts.map((part) =>
      getAll(apiPath(nodesApi.list, { slug }, { page_size: "1000", ids: part.join(","), revoked })),
    ),
  );
  return found.flat();
}
