// `agent admin export` and `agent admin import`: from an organization to plain Nebula files, and back.

import { countOf } from "../../base/quantities.ts";
import { brand } from "../../brand.ts";
import { quoteWord } from "../../base/quote.ts";
import { leastPassphrase, passphraseFlag, readPassphrase, requireLong } from "./passphrase.ts";
import { onData, onlyPlanned, onOrganization } from "./data.ts";
import type { KeyReport } from "../../server/import-export/hand-config.ts";
import type { ImportPlan } from "../../server/import-export/import-plan.ts";
import type { Implementation } from "../command.ts";
import { confirmable, ownerChoice, ownerFlags } from "../join/owner-flags.ts";
import { orgArg } from "../server/server-flags.ts";
import { switchFlag, valueFlag, wordArg } from "../values.ts";

export const exporting: Implementation = {
  notes:
    `The private keys of the CAs are encrypted with a passphrase of at least ${leastPassphrase} characters, in Nebula's format\n` +
    "(1.7 and later read it). The private keys of the nodes are not exported: they never leave their machines.",
  args: {
    ...orgArg,
    DIR: wordArg("A new directory"),
    plain: switchFlag("Do not encrypt the private keys of the CAs"),
    passphrase: passphraseFlag,
  },
  examples: [`${brand.executable} admin export acme acme-plain --passphrase-file -`],
  async run(context) {
    const { values, words, output, settings } = context;
    const [slug = "", directory = ""] = words;
    const { planTree, writeTree } = await import("../../server/import-export/plain-files.ts");
    const { requireFreePlace } = await import("../../base/files.ts");
    requireFreePlace(directory, "empty directory");
    const { exportOrganization } = await import("../../server/import-export/export.ts");
    // A plan holds no key, so it needs no passphrase.
    const isPlain = values.on("plain") || settings.dryRun;
    const passphrase = isPlain ? undefined : await readPassphrase(context, { isNew: true });
    if (passphrase !== undefined) requireLong(passphrase);
    const files = await onOrganization(context, slug, (admin, org) =>
      exportOrganization(admin, org, { passphrase, isPlan: settings.dryRun }),
    );
    if (await onlyPlanned(context, { more: planTree(directory, files) })) return;
    writeTree(directory, files);
    const paths = files.map(({ path }) => path);
    const keys = passphrase === undefined ? "not encrypted" : "encrypted with the passphrase";
    output.result(
      { org_slug: slug, directory, files: paths, keys_encrypted: passphrase !== undefined },
      `Wrote ${files.length} files to ${directory}; the keys of the CAs are ${keys}\n`,
    );
  },
};

/** At most this many places of a key are named. */
const placesShown = 3;

/**
 * One line for each key with all its results: a thousand machines have the same keys. Keys that no engine knows come
 * first, because they may be misspelt; then those that are used.
 */
function keyLines(keys: readonly KeyReport[]): string[] {
  const rank = ({ used, isUnknown }: KeyReport) => {
    if (isUnknown) return 0;
    return used ? 1 : 2;
  };
  const sorted = keys.toSorted((a, b) => rank(a) - rank(b));
  const byText = Map.groupBy(sorted, ({ key, detail }) => `${key}: ${detail}`);
  return [...byText].map(([text, reports]) => {
    const places = reports.slice(0, placesShown).map(({ file, line }) => `${file}:${line}`);
    const hidden = reports.length - places.length;
    return `${text} (${places.join(", ")}${hidden > 0 ? ` and ${hidden} more (--json lists all)` : ""})`;
  });
}

export const importing: Implementation = {
  notes:
    "DIR must hold ca.crt, ca.key and the certificates of the hosts (*.crt). Configurations (*.yml) are optional:\n" +
    "lighthouses, relays, public addresses, routes and the blocklist come from them, also from a lighthouse's own\n" +
    "directory. Each key of each file is printed with what became of it. Private keys of hosts are not read. The\n" +
    "network keeps running. Firewall rules are not imported: create them before machines register.",
  args: {
    ...orgArg,
    DIR: wordArg("Directory of the network's files"),
    network: valueFlag("CIDR", "The overlay network, if the certificates do not agree"),
    ...ownerFlags,
    passphrase: passphraseFlag,
  },
  examples: [`${brand.executable} admin import acme /etc/nebula`],
  async run(context) {
    const { values, words, output, settings } = context;
    const [slug = "", directory = ""] = words;
    const { importNetwork } = await import("../../server/import-export/import.ts");
    const options = {
      network: values.text("network"),
      owner: ownerChoice(values),
      passphrase: () => readPassphrase(context, { isNew: false }),
      isPlan: settings.dryRun,
    };
    const repeated = ["admin", "import", slug, directory];
    const done = await confirmable(values, repeated, ["network", "owner"], () =>
      onData(context, (admin) => importNetwork(admin, slug, directory, options), { mayCreateData: true }),
    );
    // With --dry-run there is only the plan.
    const isImported = "plan" in done;
    const plan = isImported ? done.plan : done;
    for (const note of plan.notes) output.say(note);
    for (const line of keyLines(plan.keys)) output.say(line);
    if (!isImported) return void (await onlyPlanned(context, { mayCreateData: true }));
    const report = importReport(slug, plan);
    output.result(
      report,
      `Created organization ${slug} (${plan.network}) with ${countOf(report.nodes.length, "node")}; all hosts keep running as they are\n`,
    );
    const [firstNode] = report.nodes;
    if (firstNode === undefined) return;
    const line = `${brand.executable} admin token create ${slug} --node ${quoteWord(firstNode.name)}`;
    output.say(
      `To manage a node: run \`${line}\`, stop its old engine, and register its machine with this token.`,
    );
  },
};

/** What was imported, for --json. */
function importReport(slug: string, plan: ImportPlan) {
  return {
    org_slug: slug,
    network: plan.network,
    network6: plan.network6,
    certificate_version: plan.certificateVersion,
    nodes: plan.hosts.map((host) => ({
      name: host.name,
      ip_address: host.ip,
      is_lighthouse: host.isLighthouse,
      is_relay: host.isRelay,
      public_ip: host.publicIp,
      external_port: host.externalPort,
      subnets: host.subnets,
      revoked: host.isBlocked,
    })),
    blocked: plan.blocklist.size,
    notes: plan.notes,
    keys: plan.keys.map(({ isUnknown, ...key }) => ({ ...key, is_unknown: isUnknown })),
  };
}
