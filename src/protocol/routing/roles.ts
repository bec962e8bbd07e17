// Roles of a node, of its row in the database and of the messages about it.

type Looked = { isLighthouse: boolean; isRelay: boolean } | { is_lighthouse: boolean; is_relay: boolean };

/** A lighthouse or a relay: other nodes look for it at its public address. */
export const isHub = (node: Looked): boolean =>
  "isRelay" in node ? node.isLighthouse || node.isRelay : node.is_lighthouse || node.is_relay;

type Leaving = { exitGroups: readonly string[] } | { exit_groups?: readonly string[] | undefined };

/** Some nodes may reach the internet through it. */
export const isExit = (node: Leaving): boolean =>
  ("exitGroups" in node ? node.exitGroups : (node.exit_groups ?? [])).length > 0;
