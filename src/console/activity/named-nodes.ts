// Names of nodes that rules and events name by their numbers.

import { nodesApi } from "../../api/nodes.ts";
import { apiPath } from "../../api/endpoint.ts";
import type { Node } from "../../protocol/node.ts";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Things } from "./event-filter.ts";
import { getAll } from "../contact/api.ts";

/** The API takes at most 200 ids. */
const maxIds = 200;

/** A deleted node is in no answer. The API lists revoked nodes, `isRevoked`, apart from the others. */
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

/** `things`, and the names of these nodes, which come later. */
export function useNamed(slug: string, ids: readonly number[], things: Things): Things {
  const [found, setFound] = useState(new Map<string, string>());
  const asked = useRef(new Set<number>());
  const missing = ids.filter((id) => !asked.current.has(id));
  useEffect(() => {
    if (missing.length === 0) return;
    for (const id of missing) asked.current.add(id);
    for (const isRevoked of [false, true])
      readNamed(slug, missing, isRevoked).then(
        (nodes) =>
          setFound(
            (before) => new Map([...before, ...nodes.map(({ id, name }) => [`node/${id}`, name] as const)]),
          ),
        // Keep the numbers: the bar already says that the control plane is away.
        () => undefined,
      );
  }, [missing.join(",")]);
  const all = useRef<Things>(things);
  const next = new Map([...found, ...things]);
  // The same map while no name changed: sentences are made of it.
  if (next.size !== all.current.size || [...next].some(([thing, name]) => all.current.get(thing) !== name))
    all.current = next;
  return all.current;
}
