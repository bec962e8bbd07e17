// The names that groups and tags of Tailscale get here. Pure.

/** With room for a number behind it. */
const longest = 58;

/** `tag:web` is the group `web`. */
function groupName(word: string): string {
  const name = word
    .replace(/^(tag|group):/, "")
    .replace(/^(user|idp|autogroup):/i, "$1-")
    .replace(/[^A-Za-z0-9_.:-]/g, "-")
    .slice(0, longest);
  return /^[A-Za-z0-9]/.test(name) && name.toLowerCase() !== "any" ? name : `x${name}`;
}

/** Two of the original never become one here: each would have the rules of both. */
export function freeName(word: string, taken: ReadonlySet<string>): string {
  const name = groupName(word);
  const choices = [name, ...(word.startsWith("tag:") ? [`tag-${name}`.slice(0, longest)] : [])];
  for (let count = 2; ; count++) {
    const free = choices.find((each) => !taken.has(each));
    if (free !== undefined) return free;
    choices.push(`${name}-${count}`);
  }
}
