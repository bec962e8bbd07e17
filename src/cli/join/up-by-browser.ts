// `agent up URL`: a machine joins without a key. It shows an address and four words; a user types the words in a browser.

import { given } from "../../base/given.ts";
import { enrollmentsApi } from "../../api/enrollments.ts";
import { brand } from "../../brand.ts";
import { AppError, hasCode } from "../../base/errors.ts";
import { inWords } from "../../base/quantities.ts";
import type { Joining } from "./join.ts";
import type { Step } from "../../base/plan/plan.ts";
import type { Context } from "../command.ts";

/** Stands for the token where none is needed: this machine is registered already, or only a plan is made. */
const notUsed = "";

/** Returns the exit status: 1 if no lighthouse answers. */
export async function upByBrowser(url: string, context: Context): Promise<number> {
  const { settings, values, output } = context;
  const { checkBase } = await import("../../node/contact/requests/client.ts");
  const base = checkBase(url, values.on("allow-plain-http"));
  const wanted = await readWanted(context);
  const { joinWith, requireRunnable } = await import("./join.ts");
  const registeredSlug = await registeredHere(base, wanted.slug, context);
  if (registeredSlug !== undefined)
    return joinWith(joiningOf(base, { slug: registeredSlug, registrationToken: notUsed }, context), context);
  if (settings.dryRun) {
    output.plan(await plan(base, wanted.slug, context));
    return 0;
  }
  // Before a user is asked.
  await requireRunnable({ isForeground: values.on("foreground") }, context);
  const { findEnrollment } = await import("../../node/enroll/browser-enrollment.ts");
  // A user confirmed this machine in an earlier run that did not finish.
  const confirmed = findEnrollment(settings.configRoot, base, wanted.slug);
  if (confirmed !== undefined) {
    const name = wanted.givenName ?? confirmed.name;
    try {
      return await joinWith({ ...joiningOf(base, confirmed, context), enrolled: { name } }, context);
    } catch (error) {
      // If the confirmation was used up, the registration has deleted it (mustDropKeys): ask the user again. If it is still there,
      // another confirmation does not help: the name is taken, or this machine is registered in another mode.
      const mayBeUsedUp = hasCode(error, "token_not_valid", "conflict");
      if (!mayBeUsedUp || findEnrollment(settings.configRoot, base, wanted.slug) !== undefined) throw error;
      output.say("The confirmation of this machine does not count any more, so it needs another one");
    }
  }
  const enrolled = await askUser(base, wanted, context);
  return joinWith({ ...joiningOf(base, enrolled, context), enrolled: { name: enrolled.name } }, context);
}

/** `givenName`: the name of --node-name; `name` is the host name without it. */
type Wanted = { slug: string | undefined; name: string; givenName: string | undefined };

async function readWanted({ values }: Context): Promise<Wanted> {
  const lighthouseFlag = values.firstOf(["public-ip", "external-port", "no-relay"]);
  if (lighthouseFlag !== undefined) {
    throw new AppError(
      "usage",
      `--${lighthouseFlag} is for lighthouses, and a machine that joins in the browser is an ordinary node`,
      { hint: `A lighthouse needs a key: \`${brand.executable} admin token create ORG --lighthouse\`.` },
    );
  }
  const { parseNodeName } = await import("../../node/enroll/register-input.ts");
  const { parseSlug } = await import("../../node/files/organizations.ts");
  const { defaultNodeName } = await import("../../node/enroll/registration-checks.ts");
  const [slug, name] = [values.text("org"), values.text("node-name")];
  const givenName = name === undefined ? undefined : parseNodeName(name);
  return {
    slug: slug === undefined ? undefined : parseSlug(slug),
    givenName,
    name: givenName ?? defaultNodeName(),
  };
}

/** The organization of that control plane that this machine already belongs to. Throws usage if there are several. */
async function registeredHere(
  base: string,
  wanted: string | undefined,
  { settings }: Context,
): Promise<string | undefined> {
  const { checkBase } = await import("../../node/contact/requests/client.ts");
  const { organizationsAt } = await import("../../node/enroll/browser-enrollment.ts");
  // `true`: plain HTTP was allowed when the organization was registered; here URLs are only compared.
  const all = organizationsAt(settings.configRoot, (each) => checkBase(each, true) === base);
  if (wanted !== undefined) return all.find((each) => each === wanted);
  if (all.length < 2) return all[0];
  throw new AppError("usage", `This machine is in several organizations of ${base}: ${all.join(", ")}`, {
    hint: "Say which one with --org, or name another one there to join it too.",
  });
}

function joiningOf(
  apiBase: string,
  { slug, registrationToken }: { slug: string; registrationToken: string },
  { values }: Context,
): Joining {
  const caFingerprint = values.text("ca-fingerprint");
  const ca = given({ caFingerprint });
  // `isShortLived` matters to keys on a command line alone.
  return { apiBase, slug, registrationToken, role: "node", isShortLived: true, ...ca };
}

async function plan(base: string, slug: string | undefined, context: Context): Promise<Step[]> {
  if (slug === undefined) {
    throw new AppError(
      "usage",
      "A plan needs --org: without it, the user chooses the organization in the browser",
    );
  }
  const { planJoin } = await import("./join.ts");
  return [
    ...[enrollmentsApi.create, enrollmentsApi.poll].map(
      ({ method, path }) => ({ step: "request", method, url: base + path }) as const,
    ),
    ...(await planJoin(joiningOf(base, { slug, registrationToken: notUsed }, context), context)),
  ];
}

/** Shows the address and the words, and waits until a user has confirmed this machine. */
async function askUser(base: string, { slug, name }: Wanted, context: Context) {
  const { settings, system, log, values, output } = context;
  const { makeClient } = await import("../../node/contact/requests/client.ts");
  const { awaitConfirmation, saveEnrollment } = await import("../../node/enroll/browser-enrollment.ts");
  const { readApiCaByFingerprint } = await import("../../node/enroll/register-input.ts");
  const print = values.text("ca-fingerprint");
  const ca = print === undefined ? {} : { ca: await readApiCaByFingerprint(base, print) };
  const client = makeClient({ base, system, log, allowPlainHttp: values.on("allow-plain-http"), ...ca });
  const enrolled = await awaitConfirmation(
    client,
    { name, slug },
    { system },
    ({ address, words, endsInS }) => {
      if (output.json) output.result({ state: "waiting", url: address, words, expires_in: endsInS }, "");
      else
        output.say(
          `Open this page in a browser, on any machine, and sign in:\n  ${address}\n` +
            `Type these four words there, within ${inWords(endsInS * 1000)}:\n  ${words.join(" ")}\n` +
            "This machine then goes on by itself. Do not tell anyone else the words.",
        );
    },
  );
  if (output.json) output.result({ state: "confirmed", org_slug: enrolled.slug }, "");
  else output.say(`Confirmed for ${enrolled.slug}`);
  await saveEnrollment(settings.configRoot, base, enrolled, system);
  return enrolled;
}
