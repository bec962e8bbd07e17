// Finds which nodes a policy of Tailscale or headscale may make routers. There, a rule to a router is about the router alone, and a
// rule to a network behind it names the network. Here, a rule that reaches a router reaches the networks behind it, too, so such
// rules are not imported. Pure.
//
// Example: autoApprovers { routes: { "192.168.5.0/24": ["tag:router", "group:net"] } }, and group:net is ann@example.org:
//
//   mayBeRouters("tag:router")   true
//   mayBeRouters("group:dev")    true if ann@example.org is in it, too: a node of hers may route for group:net
//   mayBeRouters("tag:web")      false
//   mayBeOfUsers                 true: ann's nodes may be

export type Routers = {
  /** Whether nodes with this tag, or of this group's users, may be routers. */
  mayBeRouters(word: string): boolean;
  /** Whether nodes that users own, and not only nodes with tags, may be routers. */
  mayBeOfUsers: boolean;
};

/** `approvers`: the value of `autoApprovers`. `via`: what the grants name. */
export function findRouters(
  approvers: unknown,
  via: readonly unknown[],
  groups: Readonly<Record<string, readonly string[]>>,
): Routers {
  const sections = typeof approvers === "object" && approvers !== null ? Object.entries(approvers) : [];
  // Exit nodes are no routers here: they route 0.0.0.0/0 alone, which is refused.
  const routes = sections.filter(([key]) => key.toLowerCase() !== "exitnode");
  const approved = new Set(textsIn([routes.map(([, value]) => value), via]));
  const users = new Set([...approved].flatMap((word) => groups[word] ?? (word.includes("@") ? [word] : [])));
  const mayBeAnyUsers = [...approved].some(isRoleOfUsers);
  return {
    mayBeRouters(word) {
      if (approved.has(word)) return true;
      if (word.startsWith("tag:")) return approved.has("autogroup:tagged");
      return mayBeAnyUsers || (groups[word] ?? []).some((user) => users.has(user) || isRoleOfUsers(user));
    },
    mayBeOfUsers: mayBeAnyUsers || users.size > 0 || [...approved].some((word) => word.startsWith("group:")),
  };
}

/** Such as autogroup:member or autogroup:admin, whose users are not in the policy. */
const isRoleOfUsers = (word: string) => word.startsWith("autogroup:") && word !== "autogroup:tagged";

/** Every text in the value, at any depth, so that a form that we do not know is not overlooked. */
function textsIn(value: unknown): string[] {
  if (typeof value === "string") return [value];
  return typeof value === "object" && value !== null ? Object.values(value).flatMap(textsIn) : [];
}
