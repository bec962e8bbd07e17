// Words that people try, from other tools and from habit, and the commands that they mean.

/** Nouns and verbs of other tools. Made on demand: few command lines have a wrong word. */
const makeMeanings = (): ReadonlyMap<string, string> =>
  new Map([
    ...all("node", "nodes device devices machine machines host hosts client clients peer peers"),
    ...all("org", "orgs organization organizations organisation network networks tailnet"),
    ...all("user", "users account accounts"),
    ...all("member", "members people"),
    ...all("group", "groups tag tags"),
    ...all("rule", "rules firewall acl acls"),
    ...all("token", "tokens authkey auth-key preauthkey preauthkeys joinkey join-key key keys"),
    ...all("invitation", "invitations invite invites"),
    ...all("webhook", "webhooks hook hooks"),
    ...all("server", "servers replica replicas"),
    ...all("events", "event audit-log log-events activity"),
    ...all("ca", "cas certificate-authority"),
    ...all("service-token", "service-tokens apikey api-key apikeys api-keys"),
    ...all("list", "ls all"),
    ...all("create", "add new make generate"),
    ...all("delete", "remove rm del destroy"),
    ...all("show", "get info describe inspect view"),
    ...all("update", "edit set change modify"),
    ...all("revoke", "ban block expire disable kick"),
    ...all("restore", "unban unblock unrevoke enable"),
    ...all("rename", "mv"),
  ]);

/** Whole lines that mean something else than their words. */
const makeLines = (): ReadonlyMap<string, string> =>
  new Map(
    Object.entries({
      "node create": "admin token create",
      "node diff": "admin diff",
      diff: "admin diff",
      connect: "up",
      join: "up",
      enroll: "up",
      disconnect: "down",
      leave: "unregister",
      signin: "login",
      "sign-in": "login",
      "log-in": "login",
      auth: "login",
      signout: "logout",
      "sign-out": "logout",
      "log-out": "logout",
      upgrade: "self-update",
      update: "self-update",
      diagnose: "doctor",
      bugreport: "doctor",
      log: "logs",
      ping: "admin path",
      id: "whoami",
      rename: "admin node rename",
    }),
  );

/** Nouns without a command of their own: the help of this command names the flag. */
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
  const [meanings, lines] = [makeMeanings(), makeLines()];
  const own = typed.map((word) => meanings.get(word) ?? word);
  const [noun = "", verb = "", org = "", node = "", group] = typed;
  if (meanings.get(noun) === "group" || noun === "group") {
    // A group of that name would be created, and no node would be in it.
    if (meanings.get(verb) === "create" && group !== undefined)
      return ["admin node update", org, node, "--add-group", group];
  }
  const withFlag = makeFlagsOfCommands().get(noun);
  if (withFlag !== undefined) return [withFlag, "--help"];
  for (const count of [2, 1]) {
    if (own.length < count) continue;
    const line = own.slice(0, count).join(" ");
    const said = lines.get(typed.slice(0, count).join(" "));
    const special = isAdmin
      ? [said?.startsWith("admin ") === true ? said : undefined]
      : [lines.get(line), said];
    const rest = typed.slice(count);
    for (const command of [...special, `admin ${line}`, line]) {
      if (command === undefined || command === words.slice(0, command.split(" ").length).join(" ")) continue;
      if (names.includes(command)) return [command, ...rest];
      // A group of commands: the next word is none of them.
      if (names.some((each) => each.startsWith(`${command} `))) return [command, "--help"];
    }
  }
  return undefined;
}
