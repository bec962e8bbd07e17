// Which nodes a policy of Tailscale or headscale makes routers. There, a rule to a router is about the router alone, and one
// to a network behind it names the network. Here, a rule that reaches a router reaches the networks behind it. Pure.

export type Routers = {
  /** Whether nodes with this tag, or of this group's users, may be routers. */
  has(word: string): boolean;
  /** Whether nodes of users may be routers. */
  areOwned: boolean;
};

/** `approvers`: the value of `autoApprovers`. `via`: what the grants name. */
export function routersOf(
  approvers: unknown,
  via: readonly unknown[],
  groups: Readonly<Record<string, readonly string[]>>,
): Routers {
  // An exit node routes 0.0.0.0/0 alone, which is refused here.
  const sections = typeof approvers === "object" && approvers !== null ? Object.entries(approvers) : [];
  const routes = sections.filter(([key]) => key.toLowerCase() !== "exitnode");
  const words = new Set(textsIn([routes.map(([, value]) => value), via]));
  const isRole = (word: string) => word.startsWith("autogroup:") && word !== "autogroup:tagged";
  const users = new Set([...words].flatMap((word) => groups[word] ?? (word.includes("@") ? [word] : [])));
  const anyUser = [...words].some(isRole);
  return {
    has(word) {
      if (words.has(word)) return true;
      if (word.startsWith("tag:")) return words.has("autogroup:tagged");
      return anyUser || (groups[word] ?? []).some((user) => users.has(user) || isRole(user));
    },
    areOwned: anyUser || users.size > 0 || [...words].some((word) => word.startsWith("group:")),
  };
}

/** Every text in it, in any depth: what is not of the expected form counts, too. */
function textsIn(value: unknown): string[] {
  if (typeof value === "string") return [value];
  return typeof value === "object" && value !== null ? Object.values(value).flatMap(textsIn) : [];
}
