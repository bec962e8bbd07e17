// What `agent setup` asks on a terminal, and the defaults that it offers there.

import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import { given } from "../../base/given.ts";
import { maskNetwork, networksOverlap, parseNetwork } from "../../base/ip.ts";
import type { SetupData } from "../../server/setup.ts";
import type { Context } from "../command.ts";

/** The organization of an administrator who names none. */
export const usualSlug = "main";

/** What was typed on the terminal. */
export type Typed = Partial<Record<"name" | "email" | "password" | "slug" | "network", string>>;

/** Asks on a terminal for what flags, settings and data leave open. All at once: the answers may be pasted. */
export async function askMissing(
  data: SetupData,
  { hasPublicUrl }: { hasPublicUrl: boolean },
  context: Context,
): Promise<Typed> {
  const { values, system, settings } = context;
  if (values.on("yes") || !system.stdinIsTerminal || settings.dryRun) return {};
  const has = (flag: string) => values.text(flag) !== undefined;
  const isFirstOrg = !data.hasOrgs;
  const free = isFirstOrg && !has("network") ? await freeNetwork(context) : "";
  const questions = [
    {
      key: "name",
      text: "Name or address under which other machines reach this one",
      isAsked: !has("public-name") && !hasPublicUrl,
    },
    {
      key: "email",
      text: "E-mail address of the first administrator",
      isAsked: !data.hasUsers && !has("email"),
    },
    { key: "password", text: "Password (not shown)", isAsked: !data.hasUsers && !has("password-file") },
    { key: "again", text: "Again", isAsked: !data.hasUsers && !has("password-file") },
    {
      key: "slug",
      text: `Short name of the organization [${usualSlug}]`,
      isAsked: isFirstOrg && !has("org-slug"),
    },
    { key: "network", text: `Its overlay network [${free}]`, isAsked: isFirstOrg && !has("network") },
  ].filter(({ isAsked }) => isAsked);
  if (questions.length === 0) return {};
  const { ask } = await import("../ask.ts");
  const secret = ["password", "again"];
  const answers = await ask(
    questions.map(({ key, text }) => ({ text: `${text}: `, isSecret: secret.includes(key) })),
    system,
  );
  // An empty answer takes the default. Spaces belong to a password.
  const textOf = (key: string, text = "") => (secret.includes(key) ? text : text.trim()) || undefined;
  const typed = new Map(questions.map(({ key }, at) => [key, textOf(key, answers[at])]));
  if (typed.get("password") !== typed.get("again"))
    throw new AppError("usage", "The two passwords differ: run the command again");
  const keys = ["name", "email", "password", "slug", "network"] as const;
  return given(Object.fromEntries(keys.map((key) => [key, typed.get(key)])));
}

/** The error where a value is neither given, nor known, nor asked for. */
export function missingFlag(flag: string): AppError {
  return new AppError("usage", `Missing ${flag}`, {
    hint: `Without a terminal, or with --yes, \`${brand.executable} setup\` needs --public-name and --email.`,
  });
}

/** A network that none of this machine's interfaces has, and none of its routes leads to. */
export async function freeNetwork({ system }: Context): Promise<string> {
  const { addresses, routes } = await system.machineState();
  const used = [...addresses.map(({ address }) => address), ...routes.map((each) => each.network)].flatMap(
    (each) => parseNetwork(maskNetwork(each) ?? "") ?? [],
  );
  const isFree = (text: string) => {
    const network = parseNetwork(text);
    return network !== undefined && !used.some((each) => networksOverlap(each, network));
  };
  const candidates = Array.from({ length: 100 }, (_, at) => `10.${77 + at}.0.0/16`);
  return candidates.find(isFree) ?? "10.77.0.0/16";
}
