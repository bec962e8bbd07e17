// Names of machines that rules and events name by their numbers.

import type { Node } from "../protocol/node.ts";
import { getAll, org } from "./api.ts";

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
  const which = isRevoked ? "&revoked=true" : "";
  const found = await Promise.all(
    parts.map((part) => getAll<Node>(org(slug, `nodes/?page_size=1000&ids=${part.join(",")}${which}`))),
  );
  return found.flat();
}
