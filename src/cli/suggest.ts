// Words that users try, from other tools and from habit, and the commands that they mean.

/** Nouns and verbs of other tools. Made on demand: few command lines have a wrong word. */
const makeMeanings = (): ReadonlyMap<string, string> =>
  new Map([
    ...all("node", "nodes device devices machine machines host hosts client clients peer peers"),
    ...all("org", "orgs organization organizations organisation network networks tailnet"),
    ...all("user", "users account accounts"),
    ...all("member", "members people role roles"),
    ...all("group", "groups tag tags"),
    ...all("rule", "rules firewall acl acls"),
    ...all("policy", "policies"),
    ...all("token", "tokens authkey auth-key preauthkey preauthkeys joinkey join-key key keys"),
    ...all("registration", "registrations approval approvals pending"),
    ...all("invitation", "invitations invite invites"),
    ...all("webhook", "webhooks hook hooks"),
    ...all("server", "servers replica replicas"),
    ...all("events", "event audit-log log-events activity"),
    ...all("ca", "cas certificate-authority cert certs certificate certificates"),
    ...all("service-token", "service-tokens apikey api-key apikeys api-keys"),
    ...all("session", "sessions"),
    ...all("factor", "factors mfa 2fa totp"),
    ...all("oidc", "sso idp provider providers"),
    ...all("relay", "relays"),
    ...all("path", "paths connections"),
    ...all("name", "alias aliases"),
    ...all("overlay", "engine nebula"),
    ...all("list", "ls all"),
    ...all("create", "add new make generate"),
    ...all("delete", "remove rm del destroy"),
    ...all("show", "get info describe inspect view"),
    ...all("update", "edit set change modify"),
    ...all("revoke", "ban block expire disable kick"),
    ...all("restore", "unban unblock unrevoke enable"),
    ...all("rename", "mv"),
    ...all("approve", "accept allow"),
    ...all("refuse", "reject deny"),
  ]);

/** Verbs that mean about the same. A noun has one of them: tokens are revoked, rules are deleted, users are disabled. */
const likeVerbs = [
  ["delete", "revoke", "disable", "refuse"],
  ["show", "list", "get"],
  ["create", "add"],
  ["update", "rename"],
  ["restore", "enable"],
];

/** Whole lines that mean something else than their words. What ends in --help takes no further words. */
const makeLines = (): ReadonlyMap<string, string> =>
  new Map([
    ...Object.entries({
      "node create": "admin token create",
      "node diff": "admin diff",
      "upgrade engine": "overlay update",
      invite: "admin invitation create",
      audit: "admin events",
      approve: "admin registration approve",
      refuse: "admin registration refuse",
      rename: "admin node rename",
      diff: "admin diff",
      dns: "names",
      leave: "unregister",
      uninstall: "unregister",
      install: "overlay install",
      reload: "restart",
      config: "sync-config --help",
      log: "logs",
      ping: "admin path",
      id: "whoami",
      disconnect: "down",
    }),
    ...all("admin token create --help", "add new create"),
    ...all("admin node revoke", "revoke kick ban block"),
    ...all("admin node delete", "delete remove rm"),
    ...all("admin policy test", "test why explain can"),
    ...all("admin user password", "password passwd"),
    ...all("admin org show", "settings"),
    ...all("status", "list ls show info ip"),
    ...all("up", "connect join enroll"),
    ...all("login", "signin sign-in log-in auth"),
    ...all("logout", "signout sign-out log-out"),
    ...all("self-update", "upgrade update"),
    ...all("doctor", "diagnose bugreport"),
  ]);

/** The same after `admin`. */
const makeAdminLines = (): ReadonlyMap<string, string> =>
  new Map([
    ...all("admin node list", "list ls"),
    ...all("admin node show", "show info"),
    ...all("admin events", "log logs history"),
    ...all("admin org show", "config"),
    ...all("admin node update", "update edit set"),
  ]);

/** Nouns without a command: the help of this command names the flag. */
const makeFlagsOfCommands = (): ReadonlyMap<string, string> =>
  new Map([
    ...all("admin node update", "route routes subnet subnets"),
    ...all("admin token create", "lighthouse lighthouses"),
  ]);

function all(meaning: string, words: string): [string, string][] {
  return words.split(" ").map((word) => [word, meaning]);
}

/** The line that the words mean. Undefined: nothing better than the words themselves. */
export function meant(words: readonly string[], names: readonly string[]): string[] | undefined {
  const isAdmin = words[0] === "admin";
  const typed = isAdmin ? words.slice(1) : words;
  const meanings = makeMeanings();
  const own = typed.map((word) => meanings.get(word) ?? word);
  const [noun = "", verb = "", org = "", node = "", group] = typed;
  if (meanings.get(noun) === "group" || noun === "group") {
    // A group of that name would be created, and no node would be in it.
    if (meanings.get(verb) === "create" && group !== undefined)
      return ["admin node update", org, node, "--add-group", group];
  }
  const withFlag = makeFlagsOfCommands().get(noun);
  if (withFlag !== undefined) return [withFlag, "--help"];
  // For a command that refused its words: only its first two words together may mean another command.
  const isCommand = [1, 2, 3].some((count) => names.includes(words.slice(0, count).join(" ")));
  for (const count of isCommand ? [2] : [2, 1]) {
    if (own.length < count) continue;
    const rest = typed.slice(count);
    for (const command of linesOf(typed.slice(0, count), own.slice(0, count), { isAdmin, isCommand })) {
      if (command === words.slice(0, command.split(" ").length).join(" ")) continue;
      if (command.endsWith(" --help")) return [command];
      if (names.includes(command)) return [command, ...wordsFor(command, rest)];
      // A group of commands: the next word is none of them.
      if (names.some((each) => each.startsWith(`${command} `))) return [command, "--help"];
    }
  }
  return undefined;
}

/** The commands that one or two words may mean, the likeliest first. */
function linesOf(
  typed: readonly string[],
  own: readonly string[],
  { isAdmin, isCommand }: { isAdmin: boolean; isCommand: boolean },
): string[] {
  const lines = makeLines();
  const [line, meaning] = [typed.join(" "), own.join(" ")];
  const said = lines.get(line);
  const special = isAdmin
    ? [makeAdminLines().get(line), said?.startsWith("admin ") === true ? said : undefined]
    : // One word only for itself: `set` means update, but not a new executable.
      [said, typed.length === 2 ? lines.get(meaning) : undefined];
  const [noun = "", verb = ""] = own;
  const like = typed.length === 2 && !isCommand ? (likeVerbs.find((each) => each.includes(verb)) ?? []) : [];
  const admin = [line, meaning, ...like.map((each) => `${noun} ${each}`)].map((each) => `admin ${each}`);
  return [...special, ...admin, line, meaning].filter((each) => each !== undefined);
}

/** Lists of these are not of one organization. */
const listedAlone = ["user", "session", "factor", "oidc", "org"];

/** A list command takes only the organization from the words of `show`. */
function wordsFor(command: string, rest: readonly string[]): readonly string[] {
  if (!command.endsWith(" list")) return rest;
  return listedAlone.includes(command.split(" ").at(-2) ?? "") ? [] : rest.slice(0, 1);
}

/** The candidate that the user probably meant. */
export function nearest(
  given: string,
  candidates: readonly string[],
  most = Math.max(2, given.length / 2),
): string | undefined {
  const first = candidates
    .map((candidate) => ({ candidate, distance: editDistance(given, candidate) }))
    .sort((a, b) => a.distance - b.distance)[0];
  return first === undefined || first.distance > most ? undefined : first.candidate;
}

/** Levenshtein distance. */
export function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const substitution = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(substitution, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row[b.length] ?? 0;
}
