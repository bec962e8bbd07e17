// `agent admin seal …`: the seals of an organization, for its signers. A seal says what the control plane may send the nodes, and is
// signed with keys that the control plane does not have. An observed one only lets nodes tell what it would refuse. What a seal
// changes is computed here, from the seal that the signer knows, and never taken from the control plane. `ssh-keygen` signs: no key
// comes into this program.

import type { AnswerOf } from "../../../api/endpoint.ts";
import { sealsApi } from "../../../api/certificates/seals.ts";
import { request } from "../../../api/request.ts";
import { brand } from "../../../brand.ts";
import { AppError } from "../../../base/errors.ts";
import { quoteWord } from "../../../base/quote.ts";
import { confirmWord } from "../../ask.ts";
import type { Context, Implementation } from "../../command.ts";
import { orgArg } from "../../server/server-flags.ts";
import { switchFlag, valueFlag, wordArg } from "../../values.ts";
import { read, write } from "../api.ts";

type Answer = AnswerOf<typeof sealsApi.list>;
type NextSeal = typeof import("../../../server/config/next-seal.ts");
type OpenedSeal = ReturnType<NextSeal["newestAfter"]>;
type Signer = ReturnType<NextSeal["readSigner"]>;

const signerFlag = {
  signer: valueFlag("FILE", "The public half of a signer's Ed25519 key (.pub); repeat it for each signer", {
    repeatable: true,
  }),
};

const howToSign = (slug: string) =>
  `Sign it: \`ssh-keygen -Y sign -f KEY -n seal@${brand.id} FILE\`, then \`${brand.executable} admin seal publish ${quoteWord(slug)} FILE\``;

export const init: Implementation = {
  notes: `Prints the first seal of an organization: all that its nodes are told now, in words on standard error, and as the text to
sign on standard output. Each signer signs it. Nodes that hold a seal tell what it would refuse, and refuse nothing until \`sign --enforce\`.`,
  args: {
    ...orgArg,
    observe: switchFlag("Nodes tell what the seal would refuse. `sign --enforce` follows"),
    ...signerFlag,
  },
  examples: [
    `${brand.executable} admin seal init acme --observe --signer ~/.ssh/id_ed25519.pub > acme-1.seal`,
  ],
  async run(context) {
    const { words, values } = context;
    const [slug = ""] = words;
    if (!values.on("observe"))
      throw new AppError("usage", "Give --observe: `sign --enforce` makes nodes enforce a later seal");
    const signers = await readSigners(context);
    if (signers.length === 0)
      throw new AppError("usage", "Give the public key of a signer with --signer FILE");
    const answer = await read(context, (api) => api.call(sealsApi.list, { slug }));
    if (answer.seals.length > 0)
      throw new AppError("conflict", `${slug} is sealed already`, {
        hint: `See what waits for a signature: \`${brand.executable} admin seal review ${quoteWord(slug)} --known HASH\``,
      });
    await printSeal(context, { answer, signers });
  },
};

export const review: Implementation = {
  notes: `Shows all that changes from the seal that you know to the next one, also what others have signed since: new CAs with their
limits, what is gained (also which nodes reach which), then what is lost. The text to sign goes to standard output. Take the hash from your own notes, not from the control plane: it is what
the last \`publish\` printed. The control plane keeps the seals that changed the signers, and the newest; of another one give the file.`,
  args: {
    ...orgArg,
    known: valueFlag(
      "HASH|FILE",
      "The last seal that you signed or reviewed: its hash, at least 16 digits, or its file",
      { required: true },
    ),
    ...signerFlag,
  },
  examples: [`${brand.executable} admin seal review acme --known 5f0c9a2b7d31e486 > acme-2.seal`],
  async run(context) {
    const [slug = ""] = context.words;
    const answer = await read(context, (api) => api.call(sealsApi.list, { slug }));
    const { newestAfter } = await import("../../../server/config/next-seal.ts");
    const known = await readKnown(context, answer);
    const newest = newestAfter(answer.seals, known);
    const givenSigners = await readSigners(context);
    const signers = givenSigners.length === 0 ? newest.seal.signers : givenSigners;
    await printSeal(context, { answer, signers, newest, known });
  },
};

export const publish: Implementation = {
  notes: `Sends a signed seal to the control plane, which hands it to all nodes, after the same checks on this machine. Note the hash:
\`review\` asks for it. A token needs the scope policy, of an administrator.`,
  args: {
    ...orgArg,
    FILE: wordArg("The seal, as `init` or `review` printed it"),
    signature: valueFlag(
      "FILE",
      "A signature by ssh-keygen (default: FILE.sig); repeat it for each signature",
      { repeatable: true },
    ),
  },
  examples: [`${brand.executable} admin seal publish acme acme-1.seal`],
  async run(context) {
    const { words, values, output, system } = context;
    const [slug = "", file = ""] = words;
    const { newestOf, openForAll } = await import("../../../server/config/next-seal.ts");
    const { readText } = await import("../../../base/open-file.ts");
    const signatureFiles = values.list("signature");
    const { readTextIfThere } = await import("../../../base/files.ts");
    const body = {
      text: readText(file),
      signatures: (signatureFiles.length === 0 ? [`${file}.sig`] : signatureFiles).map((each) => {
        const signature = readTextIfThere(each);
        if (signature !== undefined) return signature;
        throw new AppError("usage", `There is no signature ${each}`, { hint: howToSign(slug) });
      }),
    };
    const effect = `publish the seal ${file} of ${slug}`;
    const done = await write(context, async (api) => {
      const { seals } = await api.call(sealsApi.list, { slug });
      openForAll(body, newestOf(seals), slug, system.now());
      return { ...request(sealsApi.publish, { slug }, body), effect };
    });
    if (done === undefined) return;
    output.result(done, `Published seal ${done.number}: ${done.hash}\n`);
    output.say("Note the hash. Nodes show its beginning in `status`.");
  },
};

export const forget: Implementation = {
  notes: `For an organization whose signers are all lost: the control plane hands its seals out no more. Each node keeps the seal that it
holds until root runs \`${brand.executable} unseal\` there. Then begin again with \`init\`. It asks first.`,
  args: { ...orgArg, yes: switchFlag("Ask nothing") },
  examples: [`${brand.executable} admin seal forget acme`],
  async run(context) {
    const { settings, system, values, words } = context;
    const [slug = ""] = words;
    const effect = `make the control plane forget the seals of ${slug}`;
    const texts = {
      why: "New nodes of the organization will hold no seal",
      question: `New nodes of ${slug} will hold no seal, and a next one begins anew. Type ${slug} to forget its seals: `,
    };
    if (!settings.dryRun && !values.on("yes")) await confirmWord(slug, texts, system);
    const done = await write(context, async () => ({ ...request(sealsApi.forget, { slug }), effect }));
    if (done === undefined) return;
    context.output.result(
      { org_slug: slug, forgotten: true },
      `The control plane has forgotten the seals of ${slug}.\n`,
    );
    context.output.say(`On each node: \`${brand.executable} unseal ${quoteWord(slug)}\``);
  },
};

export const show: Implementation = {
  notes:
    "What the control plane says of the seals. A node that holds another one shows that in `status`. A token needs the scope policy.",
  args: orgArg,
  examples: [`${brand.executable} admin seal show acme`],
  async run(context) {
    const [slug = ""] = context.words;
    const answer = await read(context, (api) => api.call(sealsApi.list, { slug }));
    const { withHeldSealing, newestOf, differencesOf, signerWords, shownText } =
      await import("../../../server/config/next-seal.ts");
    const newest = newestOf(answer.seals);
    if (newest === undefined) return context.output.result({ sealed: false }, `${slug} is not sealed.\n`);
    const { seal, hash } = newest;
    // What signers alone decide never waits: it is taken from the seal itself.
    const { gained, lost } = differencesOf(seal.state, withHeldSealing(answer.state, seal.state));
    const waits = [...gained.map((each) => `+ ${each}`), ...lost.map((each) => `- ${each}`)];
    const { number, mode, made_at: madeAt } = seal;
    const signers = seal.signers.map(signerWords);
    const made = new Date(madeAt * 1000).toISOString();
    context.output.result(
      { sealed: true, number, hash, mode, made_at: made, signers, waits: { gained, lost } },
      [
        `seal ${number} of ${made}, mode ${mode}`,
        `hash ${hash}`,
        ...signers.map((each) => `signer ${each}`),
        ...waits.map((each) => `waits for a signature: ${each}`),
      ]
        .map((line) => `${shownText(line)}\n`)
        .join(""),
    );
  },
};

/** The seal that the user knows: by the beginning of its hash, or by its file. Throws where it is not found. */
export async function readKnown({ values }: Context, { seals }: Answer): Promise<OpenedSeal> {
  const known = values.required("known");
  const hash = known.toLowerCase();
  const { knownIn, openKnownFile } = await import("../../../server/config/next-seal.ts");
  if (/^[0-9a-f]{16,64}$/.test(hash)) return knownIn(seals, hash);
  const { readTextIfThere } = await import("../../../base/files.ts");
  const text = readTextIfThere(known);
  if (text !== undefined) return openKnownFile(text);
  throw new AppError("usage", "--known is 16 to 64 hexadecimal digits, or the file of a seal");
}

async function readSigners({ values }: Context): Promise<Signer[]> {
  const files = values.list("signer");
  if (files.length === 0) return [];
  const { readText } = await import("../../../base/open-file.ts");
  const { readSigner } = await import("../../../server/config/next-seal.ts");
  const signers = files.map((file) => readSigner(readText(file)));
  if (new Set(signers.map(({ key }) => key)).size < signers.length)
    throw new AppError("usage", "--signer is given twice with the same key");
  return signers;
}

/**
 * The changes in words on standard error, the text to sign on standard output: without a line end, which would be signed too.
 * `newest` and `known` are undefined for the first seal.
 */
async function printSeal(
  { output, settings, system, words }: Context,
  {
    answer: { state, authorities },
    signers,
    newest,
    known,
  }: { answer: Answer; signers: readonly Signer[]; newest?: OpenedSeal; known?: OpenedSeal },
): Promise<void> {
  const [slug = ""] = words;
  const { withHeldSealing, nextSeal } = await import("../../../server/config/next-seal.ts");
  const { changeLines, changesIn } = await import("./shown-changes.ts");
  // What signers alone decide stays as it is in the newest seal, whatever the control plane says of it.
  const nextState = withHeldSealing(state, newest?.seal.state);
  const next = nextSeal(newest, nextState, signers, system.now());
  const number = next?.number ?? newest?.seal.number;
  // The mode stays: only `sign` changes it.
  const mode = newest?.seal.mode ?? "observe";
  const after = { state: nextState, signers: [...signers], mode };
  const compared = { slug, known, newest, after, number, authorities };
  const changes = await changesIn(compared);
  const lines = [
    ...(await changeLines(compared, changes)),
    ...(next === undefined ? [] : [`Hash: ${next.hash}`, howToSign(slug)]),
  ];
  // The changes are also shown if nothing waits for a signature, but others have signed since the known seal.
  if (next !== undefined || known?.hash !== newest?.hash) for (const line of lines) output.say(line);
  if (next === undefined)
    return output.say("Nothing waits for a signature: nodes are told what the seal says.");
  if (settings.json) output.result({ ...changes, ...next }, "");
  else output.raw(next.text);
}
