// `agent admin seal pending` and `sign`: a signer's daily work. What is signed is computed and shown here, from the seal that
// this signer knows; the control plane's list decides nothing but which nodes are asked about.

import { join } from "node:path";
import type { AnswerOf } from "../../../api/endpoint.ts";
import { request } from "../../../api/request.ts";
import { sealsApi, type Sealable } from "../../../api/certificates/seals.ts";
import { brand } from "../../../brand.ts";
import { buildInfo } from "../../../build-info.ts";
import { AppError } from "../../../base/errors.ts";
import { quoteWord } from "../../../base/quote.ts";
import { countOf } from "../../../base/quantities.ts";
import type { Context, Implementation } from "../../command.ts";
import { orgArg } from "../../server/server-flags.ts";
import type { Cell } from "../../table.ts";
import type { Flags } from "../../values.ts";
import { read, write, type Api } from "../api.ts";
import { missingGroups } from "../lookup.ts";
import { passphraseFlag, readPassphrase } from "../passphrase.ts";
import { targetFlags } from "../target.ts";
import { openRecords, recordsFlag, type Kept, type Records } from "./records.ts";
import { readKnown } from "./seals.ts";
import { changeLines, changesIn } from "./shown-changes.ts";

type NextSeals = typeof import("../../../server/config/next-seal.ts");
type SignSeals = typeof import("../../../server/config/sign-seal.ts");
type OpenedSeal = ReturnType<NextSeals["newestAfter"]>;
type Shown = AnswerOf<typeof sealsApi.list>;
type Asked = AnswerOf<typeof sealsApi.sealable>;
type State = Shown["state"];
type Issued = Parameters<SignSeals["sealedBy"]>[3];

export const pending: Implementation = {
  notes: `Lists the nodes that need a certificate of the offline CA: members of the privileged groups of the newest seal, lighthouses, relays,
routers and exits. A certificate is due 60 days before its end. \`sign\` makes them.`,
  args: { ...orgArg, ...targetFlags },
  examples: [`${brand.executable} admin seal pending acme`],
  async run(context) {
    const [slug = ""] = context.words;
    const { newestOf } = await import("../../../server/config/next-seal.ts");
    const { dueIn } = await import("../../../server/config/sign-seal.ts");
    const { nodes } = await read(context, async (api) => {
      const { seals } = await api.call(sealsApi.list, { slug });
      const groups = newestOf(seals)?.seal.state.sealing?.privileged ?? [];
      return api.call(sealsApi.sealable, { slug }, { groups });
    });
    const due = dueIn(nodes, context.system.now());
    const rows = due.map((node): Cell[] => [
      node.name,
      node.why.join(", "),
      stateOf(node),
      node.agent_version,
      node.engine_version,
    ]);
    const listed = due.map(({ name, why, certified_until, is_whole, agent_version, engine_version }) => ({
      name,
      why,
      certified_until,
      is_whole,
      agent_version,
      engine_version,
    }));
    context.output.list(
      { waiting: listed, signed: nodes.length - due.length },
      {
        columns: ["NODE", "BECAUSE", "CERTIFICATE", "AGENT", "ENGINE"],
        rows,
        none: "No node waits for a certificate of the offline CA.",
      },
    );
  },
};

function stateOf({ certified_until: until, is_whole: isWhole }: Sealable): string {
  if (until === null) return "none";
  return isWhole ? `until ${until}` : "outdated";
}

const signFlags: Flags = {
  ca: {
    type: "string",
    valueHint: "FILE",
    required: true,
    description: "File of the offline CA's key, as `seal ca` wrote it",
  },
  key: {
    type: "string",
    valueHint: "FILE",
    required: true,
    description: "Your SSH key, as for `ssh-keygen -f`",
  },
  known: {
    type: "string",
    valueHint: "HASH|FILE",
    description: "The last seal that you know, if your records have none",
  },
  privileged: {
    type: "string",
    valueHint: "GROUP",
    repeatable: true,
    description: "Only the offline CA gives this group from now on",
  },
  "not-privileged": {
    type: "string",
    valueHint: "GROUP",
    repeatable: true,
    description: "The control plane may give this group again",
  },
  open: {
    type: "string",
    valueHint: "NODE",
    repeatable: true,
    description: "This sealed node serves unprivileged nodes too",
  },
  closed: {
    type: "string",
    valueHint: "NODE",
    repeatable: true,
    description: "This sealed node has tunnels with sealed nodes alone",
  },
  words: {
    type: "string",
    valueHint: "NODE=WORDS",
    repeatable: true,
    description: "The words of a node's host key, from its machine (default: ask on the terminal)",
  },
  "end-ca": {
    type: "string",
    valueHint: "FINGERPRINT",
    repeatable: true,
    description:
      "Replace the certificates of this offline CA by those of --ca. Repeat it later: then nodes no longer trust it",
  },
  enforce: { type: "boolean", description: "Nodes refuse from now on what the seal does not say" },
  observe: { type: "boolean", description: "Nodes only tell it" },
  yes: { type: "boolean", description: "Do not ask after the changes are shown" },
};

export const sign: Implementation = {
  notes: `Shows all that changes from the last seal that you signed, asks for the words of each new host key, which \`${brand.executable} key-words\` prints on the
machine itself, and then signs: certificates of the nodes with the offline CA, and the seal with \`ssh-keygen\`. It publishes both. Run it on the
machine of a signer. What you sign is noted there, and a second seal with the same number is refused. Nothing of the CA's key leaves the machine.`,
  args: { ...orgArg, ...signFlags, passphrase: passphraseFlag, ...recordsFlag, ...targetFlags },
  examples: [
    `${brand.executable} admin seal sign acme --ca acme-offline.key --key ~/.ssh/id_ed25519 --privileged db`,
  ],
  async run(context) {
    const { words, output } = context;
    const [slug = ""] = words;
    const records = await openRecords(context, slug);
    const done = await write(context, async (api) => {
      const prepared = await prepare(context, api, records);
      return { ...request(sealsApi.publish, { slug }, prepared.body), effect: prepared.effect };
    });
    if (done === undefined) return;
    output.result(done, `Published seal ${done.number}: ${done.hash}\n`);
    if (records.newest() !== undefined || records.issued() !== undefined)
      output.say(`Your records are in ${records.directory}: keep a copy.`);
    output.say(`Compare the beginning of the hash with \`${brand.executable} status\` of some machines.`);
  },
};

type Body = { text: string; signatures: string[] };
/** `effect`: what the request does, for the question before it and for --dry-run. */
type Prepared = { body: Body; effect: string };

/**
 * Undefined: every seal that was signed here is published. A failure after signing leaves one that is not. Throws conflict if
 * the control plane lacks others before it, as after the restore of an old backup.
 */
function unpublished(
  kept: Kept | undefined,
  newest: number,
  slug: string,
  { directory }: Records,
): Prepared | undefined {
  if (kept === undefined || kept.number <= newest) return undefined;
  const next = newest + 1;
  if (kept.number > next)
    throw new AppError(
      "conflict",
      `The control plane lacks the seals ${next} to ${kept.number} of ${slug}: you have signed seal ${kept.number}`,
      {
        hint: `It was restored from an older backup, or a thief withholds them. Publish them again in their order, also those of other signers: \`${brand.executable} admin seal publish ${quoteWord(slug)} ${quoteWord(join(directory, `${next}.seal`))}\``,
      },
    );
  const effect = `publish seal ${kept.number} of ${slug}, which was signed here before`;
  return { body: { text: kept.text, signatures: [kept.signature] }, effect };
}

/**
 * Shows what would be signed, asks, and signs. Seal and certificates are in the records before they are sent. With
 * --dry-run, or if nothing waits for a signature, `body` has the newest published seal again.
 */
async function prepare(context: Context, api: Api, records: Records): Promise<Prepared> {
  const { words, output, settings, system } = context;
  const [slug = ""] = words;
  const next = await import("../../../server/config/next-seal.ts");
  const signing = await import("../../../server/config/sign-seal.ts");
  const shown = await api.call(sealsApi.list, { slug });
  const kept = records.newest();
  const published = next.newestOf(shown.seals);
  const left = unpublished(kept, published?.seal.number ?? 0, slug, records);
  if (left !== undefined) return left;
  const known = kept === undefined ? await knownOf(context, shown) : next.knownFile(kept.text);
  const newest = known === undefined ? undefined : next.newestAfter(shown.seals, known);
  if (newest !== undefined) await requireSigner(context, newest.seal);
  const plan = await plannedSeal(context, api, shown, newest, records);
  const { state, asked, mode } = plan;
  const signers = newest?.seal.signers ?? [next.readSigner(await publicHalf(context))];
  const made = next.nextSeal(newest, state, signers, system.now(), mode);
  const replaced = signing.issuedBy(asked.nodes, context.values.list("end-ca"));
  const changed = new Set([...signing.readdressed(newest?.seal.state, state), ...replaced]);
  const due = signing.dueIn(asked.nodes, system.now(), changed);
  if (mode === "enforce" && newest?.seal.mode !== "enforce")
    refuseEarly(signing.obstacles(asked, state, buildInfo.version));
  const number = made?.number ?? newest?.seal.number ?? 1;
  const after = { state, signers, mode };
  const compared = { slug, known, newest, after, number, authorities: shown.authorities };
  const warnings = [
    ...signing.withoutAddress(state),
    ...(replaced.length === 0 ? [] : [endCaWarning]),
    ...signing.unrecorded(newest?.seal.state, state, plan.issued).map(unrecordedWarning),
  ];
  for (const line of await changeLines(compared, await changesIn(compared))) output.say(line);
  for (const { name, why } of due) output.say(next.shownText(`certificate for ${name} (${why.join(", ")})`));
  for (const each of warnings) output.say(`! ${each}`);
  const effect = `sign ${countOf(due.length, "node")} and seal ${number} of ${slug}`;
  const again = shown.seals.at(-1) ?? { text: "", signatures: [] };
  if (settings.dryRun || (made === undefined && due.length === 0)) {
    if (!settings.dryRun) output.say("Nothing waits for your signature.");
    return { body: again, effect };
  }
  // Ask for all nodes, not only for those that get a certificate now: the seal names each key, and which certificates are
  // due is what the control plane says.
  await requireWords(context, signing.unknownIn(asked.nodes, known?.seal.state));
  await confirm(context);
  const certified = await certify(context, due, plan);
  const body =
    made === undefined ? again : { text: made.text, signatures: [await sshSign(context, made.text)] };
  const [signature = ""] = body.signatures;
  if (made !== undefined) {
    next.openForAll(body, newest, slug, system.now());
    records.keep({ number: made.number, text: made.text, signature });
  }
  if (due.length > 0) {
    records.keepIssued(JSON.stringify([...plan.issued, ...certified.map(({ issued }) => issued)], null, 1));
    await api.call(
      sealsApi.addCertificates,
      { slug },
      { certificates: certified.map(({ pem }) => pem).join("") },
    );
  }
  return { body, effect };
}

const endCaWarning =
  "Repeat the command with --end-ca a minute after the nodes have their new certificates. Until then they trust that CA.";
const unrecordedWarning = (name: string) =>
  `${name} loses rights, and your records have no certificate of it to revoke: let the signer who made it sign this, or use their records`;

/** Undefined: the organization has no seal yet. */
async function knownOf(context: Context, shown: Shown): Promise<OpenedSeal | undefined> {
  if (context.values.text("known") !== undefined) return readKnown(context, shown);
  if (shown.seals.length === 0) return undefined;
  throw new AppError(
    "usage",
    "Your records have no seal of this organization: give the last one that you know with --known",
    {
      hint: "Take its hash from your own notes or from `status` of a machine that you trust, not from the control plane.",
    },
  );
}

/** Before any question: `ssh-keygen` signs with any key, and no node takes what a stranger signed. It needs no public half. */
async function requireSigner(
  { values, output }: Context,
  { number, signers }: OpenedSeal["seal"],
): Promise<void> {
  const { readSigner, signerWords } = await import("../../../server/config/next-seal.ts");
  const { readTextIfThere } = await import("../../../base/files.ts");
  const file = publicFile(values.required("key"));
  const line = readTextIfThere(file);
  if (line === undefined) return;
  const own = readSigner(line);
  if (signers.some(({ key }) => key === own.key)) return;
  // Printed, not put into the error: errors leave out what looks like a token, and fingerprints do.
  for (const each of signers) output.say(`signer ${signerWords(each)}`);
  output.say(`${file}: ${signerWords(own)}`);
  throw new AppError("usage", `--key is not the key of a signer of seal ${number}`, {
    hint: `Ask one of them to sign a seal with you among its signers: \`${brand.executable} admin seal review --signer\``,
  });
}

type Plan = { state: State; asked: Asked; issued: Issued; mode: "observe" | "enforce" };

async function plannedSeal(
  { values, words, system }: Context,
  api: Api,
  shown: Shown,
  newest: OpenedSeal | undefined,
  records: Records,
): Promise<Plan> {
  const [slug = ""] = words;
  const { carriedOn } = await import("../../../server/config/next-seal.ts");
  const { Issued, issuedBy, readsNetwork, sealedBy } = await import("../../../server/config/sign-seal.ts");
  const { readTextIfThere } = await import("../../../base/files.ts");
  const { printOfCa } = await import("../../../server/config/offline-key.ts");
  const held = newest?.seal.state.sealing;
  const removed = values.list("not-privileged");
  const without = (flag: string, known: readonly string[]) =>
    values.list(flag).filter((each) => !known.includes(each));
  const made = await missingGroups(api, slug, without("privileged", held?.privileged ?? []));
  refuseStrange("privileged", made, `is no group of ${slug}`);
  refuseStrange(
    "not-privileged",
    without("not-privileged", held?.privileged ?? []),
    "is no privileged group",
  );
  const privileged = [...(held?.privileged ?? []), ...values.list("privileged")].filter(
    (each) => !removed.includes(each),
  );
  const file = values.required("ca");
  const [caKey, caCertificate] = [file, `${file}.crt`].map((each) => readTextIfThere(each));
  if (caKey === undefined || caCertificate === undefined)
    throw new AppError("usage", `--ca ${file}: there is no ${caKey === undefined ? file : `${file}.crt`}`, {
      hint: `\`${brand.executable} admin seal ca\` wrote the key and its .crt: give the key, with the .crt beside it.`,
    });
  const own = printOfCa(caCertificate);
  const asked = await api.call(sealsApi.sealable, { slug }, { groups: privileged });
  const sealable = asked.nodes.map(({ name }) => name);
  for (const flag of ["open", "closed"]) refuseStrange(flag, without(flag, sealable), "is no sealed node");
  const ending = values.list("end-ca");
  const strange = ending.find((print) => print === own || held?.offline.includes(print) !== true);
  if (strange !== undefined)
    throw new AppError(
      "usage",
      `--end-ca ${strange} is not the fingerprint of another offline CA of the seal`,
    );
  const ended = ending.filter((print) => issuedBy(asked.nodes, [print]).length === 0);
  const offline = [
    ...(held?.offline ?? []).filter(
      (print) => print !== own && !ended.includes(print) && shown.state.authorities.includes(print),
    ),
    own,
  ];
  const { parse } = await import("valibot");
  const issued = parse(Issued, JSON.parse(records.issued() ?? "[]"));
  const [open, closed] = [values.list("open"), values.list("closed")];
  const choices = { offline, privileged, open, closed, ended, hasNetwork: readsNetwork(asked.engines) };
  const state = sealedBy(
    carriedOn(shown.state, newest?.seal.state),
    asked.nodes,
    choices,
    issued,
    system.now(),
  );
  if (values.on("enforce") && values.on("observe"))
    throw new AppError("usage", "Give --enforce or --observe, not both");
  const present = newest?.seal.mode ?? "observe";
  const asks = values.on("observe") ? "observe" : present;
  return { state, asked, issued, mode: values.on("enforce") ? "enforce" : asks };
}

/** A name with a slip of the pen would be signed, and protect nothing. */
function refuseStrange(flag: string, names: readonly string[], why: string): void {
  if (names[0] !== undefined) throw new AppError("usage", `--${flag} ${names[0]}: this ${why}`);
}

function refuseEarly(reasons: readonly string[]): void {
  if (reasons.length === 0) return;
  throw new AppError(
    "conflict",
    `Nodes could not follow a seal that they enforce: ${reasons.slice(0, 20).join("; ")}`,
    {
      hint: "Sign without --enforce first, and repeat it when this is done.",
    },
  );
}

/** From the machine, not from the control plane, which would give those of its own key. */
async function requireWords(context: Context, nodes: readonly Sealable[]): Promise<void> {
  const { values, system } = context;
  const { hasWords } = await import("../../../server/config/sign-seal.ts");
  const given = new Map(
    values.list("words").map((each) => [each.split("=")[0], each.slice(each.indexOf("=") + 1)]),
  );
  for (const node of nodes) {
    const flag = given.get(node.name);
    if (flag === undefined && !system.stdinIsTerminal)
      throw new AppError(
        "usage",
        `Give the words of the host key of ${node.name} with --words '${node.name}=WORDS'`,
        { hint: howToWords },
      );
    const areRight = flag === undefined ? await askWords(context, node) : hasWords(node, flag);
    if (!areRight) throw new AppError("untrusted_answer", wrongWords(node), { hint: compareWords });
  }
}

const howToWords = `On the machine, as root: \`${brand.executable} key-words\``;
const wrongWords = ({ name }: Sealable) =>
  `These are not the words of the key that the control plane says ${name} has`;
const compareWords =
  "Compare them with the machine again. If they are right, the control plane asks for a certificate for another key: do not sign.";
const maxTries = 3;

/** Whether the user types the right words: a slip in one must not cost the words of the nodes before. */
async function askWords({ system, output }: Context, node: Sealable): Promise<boolean> {
  const { ask } = await import("../../ask.ts");
  const { hasWords } = await import("../../../server/config/sign-seal.ts");
  for (let tries = 1; ; tries++) {
    output.say(howToWords);
    const question = { text: `Words of the host key of ${node.name}: `, isSecret: false };
    const [typed = ""] = await ask([question], system);
    if (hasWords(node, typed)) return true;
    if (tries === maxTries) return false;
    output.say(`${wrongWords(node)}. ${compareWords}`);
  }
}

async function confirm({ values, system }: Context): Promise<void> {
  if (values.on("yes")) return;
  if (!system.stdinIsTerminal)
    throw new AppError("usage", "Read the changes, then repeat the command with --yes");
  const { ask } = await import("../../ask.ts");
  const [answer = ""] = await ask([{ text: 'Sign this? Type "sign": ', isSecret: false }], system);
  if (answer.trim() !== "sign") throw new AppError("failed", "Nothing was signed");
}

async function certify(context: Context, due: readonly Sealable[], { state }: Plan) {
  if (due.length === 0) return [];
  const { signFor } = await import("../../../server/config/sign-seal.ts");
  const { openOfflineCa } = await import("../../../server/config/offline-key.ts");
  const { readText } = await import("../../../base/open-file.ts");
  const file = context.values.required("ca");
  const ca = await openOfflineCa(
    readText(file),
    readText(`${file}.crt`),
    await readPassphrase(context, false),
  );
  return due.map((node) => signFor(node, state, ca, context.system.now()));
}

async function publicHalf({ values }: Context): Promise<string> {
  const { readText } = await import("../../../base/open-file.ts");
  return readText(publicFile(values.required("key")));
}

const publicFile = (key: string) => (key.endsWith(".pub") ? key : `${key}.pub`);

/** `ssh-keygen` asks for a passphrase on the terminal, and for a touch. */
async function sshSign({ values, output, system }: Context, text: string): Promise<string> {
  const { mkdtempSync, rmSync } = await import("node:fs");
  const { writeFileAtomic } = await import("../../../base/files.ts");
  const { readText } = await import("../../../base/open-file.ts");
  const { tmpdir } = await import("node:os");
  const directory = mkdtempSync(join(tmpdir(), `${brand.executable}-seal-`));
  try {
    const file = join(directory, "seal");
    writeFileAtomic(file, text, 0o600);
    output.say("Touch your security key, if it blinks.");
    const argv = ["ssh-keygen", "-Y", "sign", "-f", values.required("key"), "-n", `seal@${brand.id}`, file];
    if (system.stdinIsTerminal) (await import("../../ask.ts")).endQuestions();
    const child = Bun.spawn(argv, { stdin: "inherit", stdout: "ignore", stderr: "inherit" });
    if ((await child.exited) !== 0)
      throw new AppError("failed", "ssh-keygen did not sign: nothing was published");
    return readText(`${file}.sig`);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}
