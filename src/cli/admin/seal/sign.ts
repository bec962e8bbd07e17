// `agent admin seal sign`: a signer's daily work. What is signed is computed and shown here, from the seal that
// this signer knows; the control plane's list decides nothing but which nodes are asked about. A seal says what the control plane may
// send the nodes (protocol/seals/seal.ts).

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
import { switchFlag, valueFlag } from "../../values.ts";
import { write, type Api } from "../api.ts";
import { passphraseFlag, readPassphrase } from "../passphrase.ts";
import { requireWords } from "./host-key-words.ts";
import { plannedSeal, type Plan } from "./plan-seal.ts";
import { openRecords, recordsFlag, type Kept, type Records } from "./records.ts";
import { readKnown } from "./seals.ts";
import { changeLines, changesIn } from "./shown-changes.ts";

type NextSeals = typeof import("../../../server/config/next-seal.ts");
type OpenedSeal = ReturnType<NextSeals["newestAfter"]>;
type Content = Parameters<NextSeals["changesOf"]>[1];
type Answer = AnswerOf<typeof sealsApi.list>;

const signFlags = {
  ca: valueFlag("FILE", "File of the offline CA's key, as `seal ca` wrote it", { required: true }),
  key: valueFlag("FILE", "Your SSH key, as for `ssh-keygen -f`", { required: true }),
  known: valueFlag("HASH|FILE", "The last seal that you know, if your records have none"),
  privileged: valueFlag("GROUP", "Only the offline CA gives this group from now on", { repeatable: true }),
  "not-privileged": valueFlag("GROUP", "The control plane may give this group again", { repeatable: true }),
  open: valueFlag("NODE", "This sealed node serves unprivileged nodes too", { repeatable: true }),
  closed: valueFlag("NODE", "This sealed node has tunnels with sealed nodes alone", { repeatable: true }),
  words: valueFlag(
    "NODE=WORDS",
    "The words of a node's host key, from its machine (default: ask on the terminal)",
    { repeatable: true },
  ),
  "end-ca": valueFlag(
    "FINGERPRINT",
    "Replace the certificates of this offline CA by those of --ca. Repeat it later: then nodes no longer trust it",
    { repeatable: true },
  ),
  enforce: switchFlag("Nodes refuse from now on what the seal does not say"),
  observe: switchFlag("Nodes only tell it"),
  yes: switchFlag("Do not ask after the changes are shown"),
};

export const sign: Implementation = {
  notes: `Shows all that changes from the last seal that you signed, asks for the words of each new host key, which \`${brand.executable} key-words\` prints on the
machine itself, and then signs: certificates of the nodes with the offline CA, and the seal with \`ssh-keygen\`. It publishes both. Run it on the
machine of a signer. What you sign is noted there, and a second seal with the same number is refused. Nothing of the CA's key leaves the machine.`,
  args: { ...orgArg, ...signFlags, passphrase: passphraseFlag, ...recordsFlag },
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
 * The publication of a seal that was signed here and is not published, as after a failure between the two; undefined if there
 * is none. `kept`: the newest seal that was signed here. `publishedNumber`: of the newest published one, or 0. Throws conflict
 * if the control plane lacks others before it, as after the restore of an old backup.
 */
function findUnpublished(
  kept: Kept | undefined,
  publishedNumber: number,
  slug: string,
  { directory }: Records,
): Prepared | undefined {
  if (kept === undefined || kept.number <= publishedNumber) return undefined;
  const next = publishedNumber + 1;
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
  const { words, output, settings } = context;
  const [slug = ""] = words;
  const { newestOf } = await import("../../../server/config/next-seal.ts");
  const answer = await api.call(sealsApi.list, { slug });
  const kept = records.newest();
  const unsent = findUnpublished(kept, newestOf(answer.seals)?.seal.number ?? 0, slug, records);
  if (unsent !== undefined) return unsent;
  const draft = await makeDraft(context, { api, answer, kept, records });
  for (const line of await draftLines(draft, { slug, answer })) output.say(line);
  const { due, nextSeal, number } = draft;
  const effect = `sign ${countOf(due.length, "node")} and seal ${number} of ${slug}`;
  const published = answer.seals.at(-1) ?? { text: "", signatures: [] };
  const isNothingDue = nextSeal === undefined && due.length === 0;
  if (settings.dryRun || isNothingDue) {
    if (!settings.dryRun) output.say("Nothing waits for your signature.");
    return { body: published, effect };
  }
  return { body: await signDraft(context, { api, draft, records, published }), effect };
}

type Draft = {
  plan: Plan;
  /** The seal that this signer knows; undefined if the organization has none. */
  known: OpenedSeal | undefined;
  newest: OpenedSeal | undefined;
  signers: Content["signers"];
  /** Undefined if it would say the same as the newest one. */
  nextSeal: ReturnType<NextSeals["nextSeal"]>;
  number: number;
  /** The nodes that get a certificate. */
  due: readonly Sealable[];
  /** The names of nodes whose certificates come from a CA of --end-ca. */
  replaced: readonly string[];
};

async function makeDraft(
  context: Context,
  { api, answer, kept, records }: { api: Api; answer: Answer; kept: Kept | undefined; records: Records },
): Promise<Draft> {
  const { system, values } = context;
  const next = await import("../../../server/config/next-seal.ts");
  const signing = await import("../../../server/config/sign-seal.ts");
  const { findObstacles } = await import("../../../server/config/seal-warnings.ts");
  const known = kept === undefined ? await knownOf(context, answer) : next.openKnownFile(kept.text);
  const newest = known === undefined ? undefined : next.newestAfter(answer.seals, known);
  if (newest !== undefined) await requireSigner(context, newest.seal);
  const plan = await plannedSeal(context, { api, answer, newest, records });
  const { state, sealable, mode } = plan;
  const signers = newest?.seal.signers ?? [next.readSigner(await publicHalf(context))];
  const nextSeal = next.nextSeal(newest, state, signers, system.now(), mode);
  const replaced = signing.issuedBy(sealable.nodes, values.list("end-ca"));
  const changed = new Set([...signing.findReaddressed(newest?.seal.state, state), ...replaced]);
  if (mode === "enforce" && newest?.seal.mode !== "enforce")
    refuseEarly(findObstacles(sealable, state, buildInfo.version));
  const number = nextSeal?.number ?? newest?.seal.number ?? 1;
  const due = signing.dueIn(sealable.nodes, system.now(), changed);
  return { plan, known, newest, signers, nextSeal, number, due, replaced };
}

/** What the signer reads before the questions: changes, certificates, warnings. */
async function draftLines(
  { plan, known, newest, signers, number, due, replaced }: Draft,
  { slug, answer }: { slug: string; answer: Answer },
): Promise<string[]> {
  const { shownText } = await import("../../../server/config/next-seal.ts");
  const { findUnrecorded, addressWarnings } = await import("../../../server/config/seal-warnings.ts");
  const { state, mode, issued } = plan;
  const after = { state, signers, mode };
  const compared = { slug, known, newest, after, number, authorities: answer.authorities };
  const warnings = [
    ...addressWarnings(state),
    ...(replaced.length === 0 ? [] : [endCaWarning]),
    ...findUnrecorded(newest?.seal.state, state, issued).map(unrecordedWarning),
  ];
  return [
    ...(await changeLines(compared, await changesIn(compared))),
    ...due.map(({ name, why }) => shownText(`certificate for ${name} (${why.join(", ")})`)),
    ...warnings.map((warning) => `! ${warning}`),
  ];
}

/** Asks, signs, and notes both in the records. Sends the certificates; returns the seal to publish. */
async function signDraft(
  context: Context,
  { api, draft, records, published }: { api: Api; draft: Draft; records: Records; published: Body },
): Promise<Body> {
  const { words, system } = context;
  const [slug = ""] = words;
  const { plan, known, newest, nextSeal, due } = draft;
  const { openForAll } = await import("../../../server/config/next-seal.ts");
  const { findUnknown } = await import("../../../server/config/seal-warnings.ts");
  // Ask for all nodes, not only for those that get a certificate now: the seal names each key, and which certificates are
  // due is what the control plane says.
  await requireWords(context, findUnknown(plan.sealable.nodes, known?.seal.state));
  await confirm(context);
  const certified = await certify(context, due, plan);
  let body = published;
  if (nextSeal !== undefined) {
    const { number, text } = nextSeal;
    const signature = await sshSign(context, text);
    body = { text, signatures: [signature] };
    // Throws for one that the control plane does not publish, before it is noted.
    openForAll(body, newest, slug, system.now());
    records.keep({ number, text, signature });
  }
  if (due.length > 0) {
    records.keepIssued(JSON.stringify([...plan.issued, ...certified.map(({ issued }) => issued)], null, 1));
    const certificates = certified.map(({ pem }) => pem).join("");
    await api.call(sealsApi.addCertificates, { slug }, { certificates });
  }
  return body;
}

const endCaWarning =
  "Repeat the command with --end-ca a minute after the nodes have their new certificates. Until then they trust that CA.";
const unrecordedWarning = (name: string) =>
  `${name} loses rights, and your records have no certificate of it to revoke: let the signer who made it sign this, or use their records`;

/** The seal that --known names. Undefined: the organization has none yet. */
async function knownOf(context: Context, answer: Answer): Promise<OpenedSeal | undefined> {
  if (context.values.text("known") !== undefined) return readKnown(context, answer);
  if (answer.seals.length === 0) return undefined;
  throw new AppError(
    "usage",
    "Your records have no seal of this organization: give the last one that you know with --known",
    {
      hint: "Take its hash from your own notes or from `status` of a machine that you trust, not from the control plane.",
    },
  );
}

/**
 * Throws usage if --key is not the key of a signer, before any question: `ssh-keygen` signs with any key, and no node takes
 * what a stranger signed. Without the public half beside the key, which signing does not need, nothing is checked.
 */
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

/** Before --enforce takes effect: nodes would refuse what they cannot check. */
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
    await readPassphrase(context, { isNew: false }),
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
