// `agent up` and `agent down`: a machine joins with a key or by a browser, or starts and stops what is registered here.

import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import type { JoinKey } from "../../protocol/join-key.ts";
import type { Step } from "../../base/plan/plan.ts";
import type { Organization } from "../../node/files/organizations.ts";
import { readNamedFile, switchFlag, valueFlag, variableOf, wordArg } from "../values.ts";
import type { Context, Implementation } from "../command.ts";
import { anyOrgArg, type Outcome } from "../node/organizations.ts";
import type { Joined } from "./examine-joined.ts";
import { newKeysFlag, permissionFlags } from "./node-flags.ts";
import { sealFlag } from "./seal-pin.ts";

/** Not a flag: a flag would put the key on the command line. */
const keyVariable = variableOf("join-key");

export const up: Implementation = {
  notes:
    "With the URL of a control plane, it joins without a key: it shows an address and four words. Open the address in a browser,\n" +
    "sign in, and type the words: the machine becomes a node of yours. The organization may restrict this\n" +
    `(${brand.executable} admin org update ORG --self-enrollment). An interrupted wait leaves nothing behind.\n` +
    `Without a key, it starts the organizations of this machine; a machine without any asks for a key. ${keyVariable} can\n` +
    "hold the key, too. On the command line it takes only keys for one machine and at most an hour, because process lists\n" +
    "and histories keep the words of a command line. The key says whether this machine becomes a lighthouse and relay. Run\n" +
    "again, it continues where it stopped, or changes nothing. Exit status 1 if no lighthouse answers, or if the port of a\n" +
    "new lighthouse is closed.",
  args: {
    KEY: wordArg(
      "A join key, the URL of a control plane, or the slug of an organization that this machine is registered with",
      { required: false },
    ),
    "key-file": valueFlag("FILE", "Read the join key from a file (- is standard input)"),
    org: valueFlag("SLUG", "With a URL: the organization to join (default: chosen in the browser)"),
    "ca-fingerprint": valueFlag(
      "sha256:HEX",
      "With a URL: trust the TLS CA of the control plane with this fingerprint",
    ),
    "allow-plain-http": switchFlag(
      "With a URL: allow http:// to another machine; keys and tokens are not protected",
    ),
    ...sealFlag,
    "node-name": valueFlag("NAME", "Name of this node (default: the host name)"),
    mode: valueFlag(
      "server|desktop",
      "Run the engine under systemd (server) or under the daemon (desktop). Default: server under systemd without a graphical login",
    ),
    "public-ip": valueFlag(
      "ADDRESS",
      "Public address or DNS name of a lighthouse (default: the address that the control plane sees)",
    ),
    "external-port": valueFlag("N", "Public UDP port of a lighthouse (default: 4242)"),
    ...newKeysFlag,
    "no-relay": switchFlag("Make this machine a lighthouse, but not a relay"),
    ...permissionFlags,
    wait: valueFlag(
      "D",
      "How long to wait until a lighthouse answers, and for an approval if one is needed",
      { default: "30s" },
    ),
    foreground: switchFlag("Install no service, and run the daemon until SIGTERM: for containers"),
  },
  examples: [
    `${brand.executable} up`,
    `${brand.executable} up https://control.example.com`,
    `${brand.executable} up https://control.example.com --org acme --ca-fingerprint sha256:HEX`,
    `${brand.executable} up --key-file /run/secrets/join-key`,
    `${brand.executable} up acme`,
    `${brand.executable} up acme --advertise 192.168.7.0/24+masquerade`,
  ],
  async run(context) {
    const [word = ""] = context.words;
    if (/^https?:\/\//i.test(word)) return upWithUrl(word, context);
    const flag = context.values.firstOf(urlFlags);
    if (flag !== undefined) throw new AppError("usage", `--${flag} goes with the URL of a control plane`);
    const key = await readKey(context);
    if (key !== undefined) {
      const { joinWith } = await import("./join.ts");
      return joinWith(key, context);
    }
    if (!context.values.on("foreground")) return startAll(context);
    const { command: daemon } = await import("../node/daemon.ts");
    return (await daemon.run(context)) ?? 0;
  },
};

export const down: Implementation = {
  notes:
    `They stay stopped, also after a reboot, until you start them again: ${brand.executable} up\n` +
    "An ephemeral node ends: the control plane removes it at once, and `agent up` brings it back.",
  args: anyOrgArg,
  examples: [`${brand.executable} down`, `${brand.executable} down acme`],
  run: stopAll,
};

const urlFlags = ["org", "ca-fingerprint", "allow-plain-http"];

async function upWithUrl(url: string, context: Context): Promise<number> {
  if (context.values.text("key-file") !== undefined)
    throw new AppError("usage", "Give the URL or --key-file, not both: a key holds the URL");
  if (context.values.on("new-keys"))
    throw new AppError("usage", "--new-keys goes with a join key, not with the URL of a control plane");
  const { upByBrowser } = await import("./up-by-browser.ts");
  return upByBrowser(url, context);
}

/** The key of the command line, --key-file, the environment or the terminal. Undefined: start what is registered here. */
async function readKey(context: Context): Promise<JoinKey | undefined> {
  const { values, words, system, settings } = context;
  const { looksLikeJoinKey, parseJoinKey } = await import("../../protocol/join-key.ts");
  const [word] = words;
  const file = values.text("key-file");
  if (word !== undefined && file !== undefined)
    throw new AppError("usage", `Give ${looksLikeJoinKey(word) ? "the key" : "ORG"} or --key-file, not both`);
  if (file !== undefined) return parseJoinKey(await readNamedFile("key-file", file, system));
  if (word !== undefined) {
    if (!looksLikeJoinKey(word)) {
      if (!values.on("new-keys")) return undefined;
      throw new AppError("usage", `--new-keys goes with a join key, and "${word}" is none`);
    }
    const { hideWord } = await import("../../platform/hide-word.ts");
    // Other users of this machine could read the key in the list of processes.
    hideWord(word);
    return requireShortLived(parseJoinKey(word));
  }
  const variable = system.env[keyVariable] ?? "";
  if (variable !== "") return parseJoinKey(variable);
  const { listOrganizations } = await import("../../node/files/list-organizations.ts");
  if (listOrganizations(settings.configRoot).length > 0 && !values.on("new-keys")) return undefined;
  if (!system.stdinIsTerminal) {
    const why = values.on("new-keys")
      ? "New keys need a join key, and there is none"
      : "This machine is in no organization, and there is no join key";
    throw new AppError("usage", why, {
      hint:
        `Give one with --key-file (- is standard input) or ${keyVariable}. An administrator makes it: ` +
        `\`${brand.executable} admin token create ORG\`.`,
    });
  }
  const { askSecret } = await import("../ask.ts");
  return parseJoinKey(await askSecret({ text: "Join key (not shown): ", isNew: false }, system));
}

function requireShortLived(key: JoinKey): JoinKey {
  if (key.isShortLived) return key;
  throw new AppError(
    "usage",
    "This join key must not stand on a command line, where other users can read it",
    {
      hint:
        `It is for several machines, or works for more than an hour. Run \`${brand.executable} up\` and paste the key when ` +
        "it asks, or use --key-file (- is standard input).",
    },
  );
}

async function startAll(context: Context): Promise<number> {
  const { settings, output } = context;
  const organizations = await chooseAll(context);
  const { isOffer, planOffers, readAllowed, tellOffers } = await import("../node/sync-config.ts");
  // What root permits by flags such as --advertise. The control plane is told of offers once the engines run.
  const allow = await readAllowed(organizations, context);
  if (settings.dryRun) {
    const offers = await planOffers(organizations, context.values);
    return planAll("start", organizations, context, { before: allow.plan, after: offers });
  }
  allow.write();
  const { examineJoined } = await import("./examine-joined.ts");
  const { reportFailures, worstStatus } = await import("../node/organizations.ts");
  const { done, outcomes } = await changeAll("start", organizations, context);
  if (isOffer(context.values))
    await tellOffers(
      done.map((each) => ({ slug: each.slug, open: () => each })),
      context,
    );
  // One after the other, so that the progress of each is shown alone.
  const joined: Joined[] = [];
  for (const each of done) joined.push(await examineJoined(each, context));
  const status = reportFailures(outcomes, output);
  output.result(
    { organizations: joined.map(({ object }) => object) },
    joined.map(({ text }) => text).join(""),
  );
  return worstStatus([status, ...joined.map((each) => each.status)]);
}

async function stopAll(context: Context): Promise<number> {
  const { settings, output } = context;
  const organizations = await chooseAll(context);
  if (settings.dryRun) return planAll("stop", organizations, context);
  const { reportFailures } = await import("../node/organizations.ts");
  const { done, outcomes } = await changeAll("stop", organizations, context);
  const status = reportFailures(outcomes, output);
  for (const each of done) await endEphemeral(each, context);
  const slugs = done.map(({ slug }) => slug);
  output.result({ stopped: slugs }, slugs.map((slug) => `${slug} is stopped\n`).join(""));
  return status;
}

/** An ephemeral node ends when it stops. After `agent up`, its next check-in brings it back. */
async function endEphemeral(organization: Organization, { system, log, output }: Context): Promise<void> {
  if (organization.config.ephemeral !== true) return;
  const { sayFarewell } = await import("../../node/enroll/unregister.ts");
  const reason = await sayFarewell(organization, system, log);
  if (reason === undefined) return;
  output.say(
    `The control plane could not be told that this ephemeral node of ${organization.slug} ends (${reason}). It removes ` +
      "the node after some minutes of silence.",
  );
}

async function chooseAll({ settings, words, output }: Context): Promise<Organization[]> {
  const { chooseOrganizations } = await import("../../node/files/organizations.ts");
  return chooseOrganizations(settings.configRoot, words[0], output.say);
}

async function planAll(
  verb: "start" | "stop",
  organizations: readonly Organization[],
  context: Context,
  { before, after }: { before: readonly Step[]; after: readonly Step[] } = { before: [], after: [] },
): Promise<number> {
  const { planOnOrganization } = await import("../node/organization-command.ts");
  const { farewellOf } = await import("../../node/enroll/unregister.ts");
  const { salvageOrganization } = await import("../../node/files/damaged-organization.ts");
  const plans = organizations.map(async (each) => {
    const steps = await planOnOrganization(verb, each, context);
    if (verb !== "stop" || each.config.ephemeral !== true) return steps;
    const farewell = farewellOf(salvageOrganization(context.settings.configRoot, each.slug));
    return farewell === undefined ? steps : [...steps, farewell];
  });
  context.output.plan([...before, ...(await Promise.all(plans)).flat(), ...after]);
  return 0;
}

/** One organization after the other, so that the output has their order. `done`: those that were changed without a failure. */
async function changeAll(
  verb: "start" | "stop",
  organizations: readonly Organization[],
  context: Context,
): Promise<{ done: Organization[]; outcomes: Outcome<unknown>[] }> {
  const { changeOrganization } = await import("../node/organization-command.ts");
  const { outcomeOf } = await import("../node/organizations.ts");
  const done: Organization[] = [];
  const outcomes: Outcome<unknown>[] = [];
  for (const each of organizations) {
    const outcome = await outcomeOf(each.slug, changeOrganization(verb, each, context));
    outcomes.push(outcome);
    if ("value" in outcome) done.push(each);
  }
  return { done, outcomes };
}
