// The operating system's keyring, for tokens and sessions. A child process of this program does the call and is killed after
// 3 s, because a locked or hanging keyring blocks its caller forever. On Linux there is no call without a session bus. Secrets are
// passed on standard input and output, never in arguments.

import { given } from "../../base/given.ts";
import { brand, keyringWord } from "../../brand.ts";
import { isLinux } from "../../platform/network/kernel.ts";
import type { System } from "../../base/system.ts";

const childTimeoutMs = 3000;

type UsedSystem = Pick<System, "run" | "env" | "platform" | "executable">;

/** The token of the keyring entry; undefined if the keyring has none or does not answer. */
export async function keyringToken(account: string, system: UsedSystem): Promise<string | undefined> {
  if (!hasKeyring(system)) return undefined;
  const token = await ask(["get", account], undefined, system);
  return token === undefined || token === "" ? undefined : token;
}

/** False if the keyring did not store it. The token is in credentials.json in any case. */
export async function storeInKeyring(account: string, token: string, system: UsedSystem): Promise<boolean> {
  return hasKeyring(system) && (await ask(["set", account], token, system)) !== undefined;
}

export async function removeFromKeyring(account: string, system: UsedSystem): Promise<boolean> {
  return hasKeyring(system) && (await ask(["delete", account], undefined, system)) !== undefined;
}

/** Whether this machine has a keyring, and whether it answers in time. */
export async function keyringState(system: UsedSystem): Promise<"absent" | "answers" | "silent"> {
  if (!hasKeyring(system)) return "absent";
  return (await ask(["get", "doctor"], undefined, system)) === undefined ? "silent" : "answers";
}

function hasKeyring({ platform, env }: UsedSystem): boolean {
  return !isLinux({ platform }) || (env["DBUS_SESSION_BUS_ADDRESS"] ?? "") !== "";
}

async function ask(
  words: string[],
  input: string | undefined,
  system: UsedSystem,
): Promise<string | undefined> {
  const result = await system.run([system.executable, keyringWord, ...words], {
    timeoutMs: childTimeoutMs,
    ...given({ input }),
  });
  return result.status === 0 && !result.timedOut ? result.stdout : undefined;
}

/** Runs in the child: get, set (token on standard input) or delete. Exit status 0 on success. */
export async function answerAsKeyringChild(
  words: readonly string[],
  system: Pick<System, "readStdin" | "stdout">,
): Promise<number> {
  const [verb, name = ""] = words;
  const entry = { service: brand.id, name };
  try {
    if (verb === "get") system.stdout.write((await Bun.secrets.get(entry)) ?? "");
    else if (verb === "set") await Bun.secrets.set({ ...entry, value: await system.readStdin() });
    else if (verb === "delete") await Bun.secrets.delete(entry);
    else return 2;
    return 0;
  } catch {
    // Locked, or no keyring: the parent uses the file.
    return 1;
  }
}
