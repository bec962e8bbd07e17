// `agent admin export` and `import`: an organization to plain Nebula files, and a hand-made Nebula network to an
// organization.

import { brand } from "../../brand.ts";
import { AppError } from "../../errors.ts";
import { onData, onlyPlanned, onOrganization } from "./data.ts";
import type { Command, Context } from "../command.ts";
import { ownerChoice, ownerFlags } from "../owner-flags.ts";
import { dataFlags } from "../server-flags.ts";

const organization = { name: "ORG", description: "the organization's slug", required: true } as const;
const passphraseFlag = {
  type: "string",
  valueHint: "P",
  secret: true,
  description: "Of the CA key; asked for on a terminal",
} as const;

/** More than a password: a password's guesses are counted. */
const leastPassphrase = 12;

/** From its flag, a file, standard input, or the person; a new one is typed twice. */
async function readPassphrase({ values, system }: Context, isNew: boolean): Promise<string> {
  const given = await values.secret("passphrase");
  if (given !== undefined) return given;
  if (!system.stdinIsTerminal) {
    throw new AppError(
      "usage",
      "Give the passphrase of the CA key with --passphrase-file (- is standard input)",
    );
  }
  const { askSecret } = await import("../ask.ts");
  return askSecret("Passphrase of the CA key: ", isNew, system);
}

export const exporting: Command = {
  name: "admin export",
  summary: "Write an organization as plain files for nebula-cert and nebula",
  notes:
    `The private keys of the CAs are encrypted under a passphrase of at least ${leastPassphrase} characters, in Nebula's own form,\n` +
    "which engines from 1.7 on read.\n" +
    "The machines' own private keys are not among the files: they never leave their machines.",
  flags: {
    plain: { type: "boolean", description: "Do not encrypt the private keys of the CAs" },
    passphrase: passphraseFlag,
    ...dataFlags,
  },
  words: [organization, { name: "DIR", description: "a new directory", required: true }],
  examples: [`${brand.executable} admin export acme acme-plain --passphrase-file -`],
  async run(context) {
    const { values, words, output, settings } = context;
    const [slug = "", directory = ""] = words;
    const { planTree, writeTree } = await import("../../server/transfer/plain-files.ts");
    const { exportOrganization } = await import("../../server/transfer/export.ts");
    // A plan shows no key, so it needs no passphrase.
    const isPlain = values.on("plain") || settings.dryRun;
    const passphrase = isPlain ? undefined : await readPassphrase(context, true);
    if (passphrase !== undefined && passphrase.length < leastPassphrase) {
      throw new AppError("usage", `The passphrase has fewer than ${leastPassphrase} characters`, {
        hint: "No server counts the guesses of who has the file.",
      });
    }
    const files = await onOrganization(context, slug, (admin, org) =>
      exportOrganization(admin, org, passphrase, settings.dryRun),
    );
    if (settings.dryRun) return output.plan(planTree(directory, files));
    writeTree(directory, files);
    const paths = files.map(({ path }) => path);
    const keys = passphrase === undefined ? "plain" : "under the passphrase";
    output.result(
      { org_slug: slug, directory, files: paths, keys_encrypted: passphrase !== undefined },
      `Wrote ${files.length} files to ${directory}; the keys of the CAs are there, ${keys}\n`,
    );
  },
};

export const importing: Command = {
  name: "admin import",
  summary: "Take a hand-made Nebula network over as a new organization",
  notes:
    "DIR holds ca.crt and ca.key, the hosts' certificates (*.crt), and, if there are any, their configurations\n" +
    "(*.yml), from which lighthouses, relays and the blocklist are read. Private keys of hosts are not looked at.\n" +
    "The network runs on as it is. Firewall rules are not taken over: make them before machines register.",
  flags: {
    network: {
      type: "string",
      valueHint: "CIDR",
      description: "The overlay's network, if the certificates differ",
    },
    ...ownerFlags,
    passphrase: passphraseFlag,
    ...dataFlags,
  },
  words: [organization, { name: "DIR", description: "where the network's files lie", required: true }],
  examples: [`${brand.executable} admin import acme /etc/nebula`],
  async run(context) {
    const { values, words, output, settings } = context;
    const [slug = "", directory = ""] = words;
    const { importNetwork } = await import("../../server/transfer/import.ts");
    const options = {
      network: values.text("network"),
      owner: ownerChoice(values, ["admin", "import", slug, directory], ["network"]),
      passphrase: () => readPassphrase(context, false),
      isPlan: settings.dryRun,
    };
    const done = await onData(context, (admin) => importNetwork(admin, slug, directory, options), {
      begins: true,
    });
    const plan = "plan" in done ? done.plan : done;
    for (const note of plan.notes) output.say(note);
    if (!("plan" in done)) return void (await onlyPlanned(context));
    const { network, network6, certificateVersion, hosts, blocklist, notes } = plan;
    const nodes = hosts.map(({ name, ip, isLighthouse, isBlocked }) => ({
      name,
      ip_address: ip,
      is_lighthouse: isLighthouse,
      revoked: isBlocked,
    }));
    output.result(
      {
        org_slug: slug,
        network,
        network6,
        certificate_version: certificateVersion,
        nodes,
        blocked: blocklist.size,
        notes,
      },
      `Made the organization ${slug} (${network}) with ${nodes.length} nodes, which run on as they are\n`,
    );
    if (nodes.length === 0) return;
    const line = `${brand.executable} admin token create ${slug} --node ${nodes[0]?.name ?? ""}`;
    output.say(
      `To have one managed: \`${line}\`, stop its old engine, register its machine with that token.`,
    );
  },
};
