// `agent admin seal …`: the seals of an organization, for its signers. What a seal changes is computed here, from the seal
// that the signer knows, and never taken from the control plane. `ssh-keygen` signs: no key comes into this program.

import type { AnswerOf } from "../../api/endpoint.ts";
import { policyApi } from "../../api/policy.ts";
import { request } from "../../api/request.ts";
import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import { quoteWord } from "../../base/plan.ts";
import type { Context, Implementation } from "../command.ts";
import { orgArg } from "../server/server-flags.ts";
import type { Flags } from "../values.ts";
import { read, write } from "./api.ts";
import { targetFlags } from "./target.ts";

type Shown = AnswerOf<typeof policyApi.seals>;
type NextSeal = typeof import("../../server/config/next-seal.ts");
type OpenedSeal = ReturnType<NextSeal["newestAfter"]>;
type Signer = ReturnType<NextSeal["readSigner"]>;

const signerFlag: Flags = {
  signer: {
    type: "string",
    valueHint: "FILE",
    repeatable: true,
    description: "The public half of a signer's Ed25519 key (.pub); repeat it for each signer",
  },
};

const howToSign = (slug: string) =>
  `Sign it: \`ssh-keygen -Y sign -f KEY -n seal@${brand.id} FILE\`, then \`${brand.executable} admin seal publish ${quoteWord(slug)} FILE\``;

export const init: Implementation = {
  notes: `Prints the first seal of an organization: all that its nodes are told now, in words on standard error, and as the text to
sign on standard output. Each signer signs it. Nodes that hold a seal tell what it would refuse, and refuse nothing yet.`,
  args: {
    ...orgArg,
    observe: {
      type: "boolean",
      description: "Nodes tell what the seal would refuse (no other mode exists yet)",
    },
    ...signerFlag,
    ...targetFlags,
  },
  examples: [
    `${brand.executable} admin seal init acme --observe --signer ~/.ssh/id_ed25519.pub > acme-1.seal`,
  ],
  async run(context) {
    const { words, values } = context;
    const [slug = ""] = words;
    if (!values.on("observe"))
      throw new AppError("usage", "Give --observe: seals that nodes enforce do not exist yet");
    const signers = await readSigners(context);
    if (signers.length === 0)
      throw new AppError("usage", "Give the public key of a signer with --signer FILE");
    const shown = await read(context, (api) => api.call(policyApi.seals, { slug }));
    if (shown.seals.length > 0)
      throw new AppError("conflict", `${slug} is sealed already`, {
        hint: `See what waits for a signature: \`${brand.executable} admin seal review ${quoteWord(slug)} --known HASH\``,
      });
    await printSeal(context, undefined, shown, signers);
  },
};

export const review: Implementation = {
  notes: `Shows what the next seal would change, compared with the seal that you know: what is gained comes first. The text to sign
goes to standard output. Take the hash from your own notes, not from the control plane: it is what the last \`publish\` printed.`,
  args: {
    ...orgArg,
    known: {
      type: "string",
      valueHint: "HASH",
      required: true,
      description: "The hash of the last seal that you signed or reviewed, at least 16 digits",
    },
    ...signerFlag,
    ...targetFlags,
  },
  examples: [`${brand.executable} admin seal review acme --known 5f0c9a2b7d31e486 > acme-2.seal`],
  async run(context) {
    const [slug = ""] = context.words;
    const shown = await read(context, (api) => api.call(policyApi.seals, { slug }));
    const { newestAfter } = await import("../../server/config/next-seal.ts");
    const known = context.values.required("known").toLowerCase();
    if (!/^[0-9a-f]{16,64}$/.test(known))
      throw new AppError("usage", "--known is 16 to 64 hexadecimal digits");
    const held = newestAfter(shown.seals, known);
    const given = await readSigners(context);
    await printSeal(context, held, shown, given.length === 0 ? held.seal.signers : given);
  },
};

export const publish: Implementation = {
  notes:
    "Sends a signed seal to the control plane, which hands it to all nodes. Note the hash: `review` asks for it.",
  args: {
    ...orgArg,
    FILE: { type: "positional", description: "The seal, as `init` or `review` printed it" },
    signature: {
      type: "string",
      valueHint: "FILE",
      repeatable: true,
      description: "A signature by ssh-keygen (default: FILE.sig)",
    },
    ...targetFlags,
  },
  examples: [`${brand.executable} admin seal publish acme acme-1.seal`],
  async run(context) {
    const { words, values, output } = context;
    const [slug = "", file = ""] = words;
    const { readText } = await import("../../base/open-file.ts");
    const given = values.list("signature");
    const signatures = (given.length === 0 ? [`${file}.sig`] : given).map((each) => readText(each));
    const body = { text: readText(file), signatures };
    const effect = `publish the seal ${file} of ${slug}`;
    const done = await write(context, () => ({ ...request(policyApi.publishSeal, { slug }, body), effect }));
    if (done === undefined) return;
    output.result(done, `Published seal ${done.number}: ${done.hash}\n`);
    output.say("Note the hash. Nodes show its beginning in `status`.");
  },
};

export const show: Implementation = {
  notes: "What the control plane says of the seals. A node that holds another one shows that in `status`.",
  args: { ...orgArg, ...targetFlags },
  examples: [`${brand.executable} admin seal show acme`],
  async run(context) {
    const [slug = ""] = context.words;
    const shown = await read(context, (api) => api.call(policyApi.seals, { slug }));
    const { newestOf, differencesOf, signerWords, shownText } =
      await import("../../server/config/next-seal.ts");
    const held = newestOf(shown.seals);
    if (held === undefined) return context.output.result({ sealed: false }, `${slug} is not sealed.\n`);
    const { seal, hash } = held;
    const { gained, lost } = differencesOf(seal.state, shown.state);
    const waits = [...gained, ...lost];
    const { number, mode, made_at: madeAt } = seal;
    const signers = seal.signers.map(signerWords);
    const made = new Date(madeAt * 1000).toISOString();
    context.output.result(
      { sealed: true, number, hash, mode, made_at: made, signers, waits },
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

async function readSigners({ values }: Context): Promise<Signer[]> {
  const files = values.list("signer");
  if (files.length === 0) return [];
  const { readText } = await import("../../base/open-file.ts");
  const { readSigner } = await import("../../server/config/next-seal.ts");
  return files.map((file) => readSigner(readText(file)));
}

/** The words on standard error, the text to sign on standard output: without a line end, which would be signed too. */
async function printSeal(
  { output, settings, system, words }: Context,
  held: OpenedSeal | undefined,
  { state }: Shown,
  signers: readonly Signer[],
): Promise<void> {
  const [slug = ""] = words;
  const { nextSeal, shownText } = await import("../../server/config/next-seal.ts");
  const next = nextSeal(held, state, signers, system.now());
  if (next === undefined)
    return output.say("Nothing waits for a signature: nodes are told what the seal says.");
  const { number, text, hash, gained, lost, signers: changed } = next;
  const lines = [
    `Seal ${number} of ${slug}: ${gained.length} gained, ${lost.length} lost, ${changed.length} signers changed`,
    ...changed,
    ...gained.map((each) => `+ ${each}`),
    ...lost.map((each) => `- ${each}`),
    `Hash: ${hash}`,
    howToSign(slug),
  ];
  for (const line of lines) output.say(shownText(line));
  if (settings.json) output.result(next, "");
  else output.raw(text);
}
