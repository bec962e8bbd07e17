// Roles of a node, of its row in the database and of the messages about it.

type WithRoles = { isLighthouse: boolean; isRelay: boolean } | { is_lighthouse: boolean; is_relay: boolean };

/** A lighthouse or a relay: other nodes look for it at its public address. */
export const isHub = (node: WithRoles): boolean =>
  "isRelay" in node ? node.isLighthouse || node.isRelay : node.is_lighthouse || node.is_relay;

type WithExit = { exitGroups: readonly string[] } | { exit_groups?: readonly string[] | undefined };

/** Whether some nodes may reach the internet through it. */
export const isExit = (node: WithExit): boolean =>
  ("exitGroups" in node ? node.exitGroups : (node.exit_groups ?? [])).length > 0;
