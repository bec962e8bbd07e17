// The names that groups and tags of Tailscale get here, and its sections that have no equal. Pure.

/** Characters of a name, of 63 that a group may have: leaves room for a number at the end. */
const longest = 58;

/**
 * `tag:web` is the group `web`. No group may begin with `user:`, `idp:` or `autogroup:` (isReservedGroup), or be named `any`: these
 * have a meaning in rules. So such names are changed.
 */
function groupName(word: string): string {
  const name = word
    .replace(/^(tag|group):/, "")
    .replace(/^(user|idp|autogroup):/i, "$1-")
    .replace(/[^A-Za-z0-9_.:-]/g, "-")
    .slice(0, longest);
  return /^[A-Za-z0-9]/.test(name) && name.toLowerCase() !== "any" ? name : `x${name}`;
}

/** Two names of the original must not become one here: each would have the rules of both. */
export function freeName(word: string, taken: ReadonlySet<string>): string {
  const name = groupName(word);
  const choices = [name, ...(word.startsWith("tag:") ? [`tag-${name}`.slice(0, longest)] : [])];
  for (let count = 2; ; count++) {
    const free = choices.find((each) => !taken.has(each));
    if (free !== undefined) return free;
    choices.push(`${name}-${count}`);
  }
}

/**
 * Why whole sections are not imported, by their keys in lower case. `groups` and `tagOwners` are not in this list: their groups are
 * imported, without the members.
 */
export const sections = new Map([
  ["ssh", "SSH of the overlay has no equal: permit port 22, and use the machine's own SSH server"],
  ["sshtests", "SSH of the overlay has no equal"],
  ["postures", "device posture is not known here"],
  ["defaultsrcposture", "device posture is not known here"],
  ["nodeattrs", "attributes of nodes have no equal: see the settings of the engine"],
  ["autoapprovers", "routes and relays are named in `routes` and `relays`, by an administrator"],
  ["ipsets", "IP sets have no equal: name networks"],
  ["derpmap", "relays are nodes of your own: see `relays`"],
  ["randomizeclientport", "it is a setting of the engine (`listen.port`)"],
  ["disableipv4", "it is a setting of the organization"],
  ["onecgnatroute", "it has no equal"],
]);
