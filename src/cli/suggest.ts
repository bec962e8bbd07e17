// Words that users try, from other tools and from habit, and the commands that they mean.

/** Nouns and verbs of other tools. Made on demand: few command lines have a wrong word. */
const makeMeanings = (): ReadonlyMap<string, string> =>
  new Map([
    ...meaning("node", "nodes device devices machine machines host hosts client clients peer peers"),
    ...meaning("org", "orgs organization organizations organisation network networks tailnet"),
    ...meaning("user", "users account accounts"),
    ...meaning("member", "members people role roles"),
    ...meaning("group", "groups tag tags"),
    ...meaning("rule", "rules firewall acl acls"),
    ...meaning("policy", "policies"),
    ...meaning("token", "tokens authkey auth-key preauthkey preauthkeys joinkey join-key key keys"),
    ...meaning("registration", "registrations approval approvals pending"),
    ...meaning("invitation", "invitations invite invites"),
    ...meaning("webhook", "webhooks hook hooks"),
    ...meaning("server", "servers replica replicas"),
    ...meaning("events", "event audit-log log-events activity"),
    ...meaning("ca", "cas certificate-authority cert certs certificate certificates"),
    ...meaning("service-token", "service-tokens apikey api-key apikeys api-keys"),
    ...meaning("session", "sessions"),
    ...meaning("factor", "factors mfa 2fa totp"),
    ...meaning("oidc", "sso idp provider providers"),
    ...meaning("relay", "relays"),
    ...meaning("route", "routes subnet subnets"),
    ...meaning("path", "paths connections"),
    ...meaning("name", "alias aliases"),
    ...meaning("overlay", "engine nebula"),
    ...meaning("list", "ls all"),
    ...meaning("create", "add new make generate"),
    ...meaning("delete", "remove rm del destroy"),
    ...meaning("show", "get info describe inspect view"),
    ...meaning("update", "edit set change modify"),
    ...meaning("revoke", "ban block expire disable kick"),
    ...meaning("restore", "unban unblock unrevoke enable"),
    ...meaning("rename", "mv"),
    ...meaning("approve", "accept allow"),
    ...meaning("refuse", "reject deny"),
  ]);

/** Verbs that mean about the same. A noun has one of them: tokens are revoked, rules are deleted, users are disabled. */
const likeVerbs = [
  ["delete", "revoke", "disable", "refuse"],
  ["show", "list", "get"],
  ["create", "add"],
  ["update", "rename"],
  ["restore", "enable"],
];

/** Phrases of one or two words that mean another command than each word alone. What ends in --help takes no further words. */
const makePhrases = (): ReadonlyMap<string, string> =>
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
    ...meaning("admin token create --help", "add new create"),
    ...meaning("admin node revoke", "revoke kick ban block"),
    ...meaning("admin node delete", "delete remove rm"),
    ...meaning("admin policy test", "test why explain can"),
    ...meaning("admin user password", "password passwd"),
    ...meaning("admin org show", "settings"),
    ...meaning("status", "list ls show info ip"),
    ...meaning("up", "connect join enroll"),
    ...meaning("login", "signin sign-in log-in auth"),
    ...meaning("logout", "signout sign-out log-out"),
    ...meaning("self-update", "upgrade update"),
    ...meaning("doctor", "diagnose bugreport"),
  ]);

/** What a single word after `admin` may mean. */
const makeAdminPhrases = (): ReadonlyMap<string, string> =>
  new Map([
    ...meaning("admin node list", "list ls"),
    ...meaning("admin node show", "show info"),
    ...meaning("admin events", "log logs history"),
    ...meaning("admin org show", "config"),
    ...meaning("admin node update", "update edit set"),
  ]);

/** Nouns without a command: the help of this command names the flag. */
const makeFlagsOfCommands = (): ReadonlyMap<string, string> =>
  new Map(meaning("admin token create", "lighthouse lighthouses"));

function meaning(command: string, words: string): [string, string][] {
  return words.split(" ").map((word) => [word, command]);
}

/** A command ("admin node list"), and the words that follow it. */
type Meaning = [command: string, ...words: string[]];

/** The command line that the words mean. Undefined: nothing better than the words themselves. */
export function findMeaning(words: readonly string[], names: readonly string[]): Meaning | undefined {
  const isAdmin = words[0] === "admin";
  const typed = isAdmin ? words.slice(1) : words;
  const meanings = makeMeanings();
  const translated = typed.map((word) => meanings.get(word) ?? word);
  const [noun = "", verb = "", org = "", node = "", group] = typed;
  if (meanings.get(noun) === "group" || noun === "group") {
    // A group of that name would be created, and no node would be in it.
    if (meanings.get(verb) === "create" && group !== undefined)
      return ["admin node update", org, node, "--add-group", group];
  }
  const withFlag = makeFlagsOfCommands().get(noun);
  if (withFlag !== undefined) return [withFlag, "--help"];
  // If the words begin with a command of ours, that command has refused the words after it. Its name alone then means no other
  // command, but the first two words together may.
  const isCommand = [1, 2, 3].some((count) => names.includes(words.slice(0, count).join(" ")));
  for (const count of isCommand ? [2] : [2, 1]) {
    if (typed.length < count) continue;
    const rest = typed.slice(count);
    const candidates = candidatesOf(typed.slice(0, count), translated.slice(0, count), {
      isAdmin,
      isCommand,
    });
    for (const command of candidates) {
      // What was typed is no better suggestion.
      if (command === words.slice(0, command.split(" ").length).join(" ")) continue;
      if (command.endsWith(" --help")) return [command];
      if (names.includes(command)) return [command, ...wordsFor(command, rest)];
      // A group of commands: the next word is none of them.
      if (names.some((each) => each.startsWith(`${command} `))) return [command, "--help"];
    }
  }
  return undefined;
}

/** The commands that one or two words may mean, the likeliest first. `translated`: the words in our own terms. */
function candidatesOf(
  typed: readonly string[],
  translated: readonly string[],
  { isAdmin, isCommand }: { isAdmin: boolean; isCommand: boolean },
): string[] {
  const phrases = makePhrases();
  const [phrase, ownPhrase] = [typed.join(" "), translated.join(" ")];
  const meant = phrases.get(phrase);
  const special: (string | undefined)[] = [];
  if (isAdmin)
    special.push(makeAdminPhrases().get(phrase), meant?.startsWith("admin ") === true ? meant : undefined);
  else special.push(meant);
  // No single word is translated for the phrases: `set` becomes `update`, whose phrase means a new executable.
  if (!isAdmin && typed.length === 2) special.push(phrases.get(ownPhrase));
  const [noun = "", verb = ""] = translated;
  const verbs =
    typed.length === 2 && !isCommand ? (likeVerbs.find((group) => group.includes(verb)) ?? []) : [];
  const withLikeVerbs = verbs.map((likeVerb) => `${noun} ${likeVerb}`);
  const admin = [phrase, ownPhrase, ...withLikeVerbs].map((command) => `admin ${command}`);
  return [...special, ...admin, phrase, ownPhrase].filter((command) => command !== undefined);
}

/** The lists of these nouns are not of one organization. */
const listedAlone = ["user", "session", "factor", "oidc", "org"];

/** A list command takes only the organization from the words of `show`. */
function wordsFor(command: string, rest: readonly string[]): readonly string[] {
  if (!command.endsWith(" list")) return rest;
  return listedAlone.includes(command.split(" ").at(-2) ?? "") ? [] : rest.slice(0, 1);
}

/** The candidate that the user probably meant: of those within `maxDistance` edits the nearest. */
export function nearest(
  given: string,
  candidates: readonly string[],
  maxDistance = Math.max(2, given.length / 2),
): string | undefined {
  const best = candidates
    .map((candidate) => ({ candidate, distance: editDistance(given, candidate) }))
    .sort((a, b) => a.distance - b.distance)[0];
  return best === undefined || best.distance > maxDistance ? undefined : best.candidate;
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
