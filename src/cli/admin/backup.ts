// `agent admin backup` and `agent admin restore`.

import { resolve } from "node:path";
import { brand } from "../../brand.ts";
import { planFile } from "../../plan-file.ts";
import { onData, onlyPlanned } from "./data.ts";
import type { Command } from "../command.ts";
import { dataFlags, readDataOptions } from "../server-flags.ts";

const file = { name: "FILE", description: "the backup", required: true } as const;

export const backup: Command = {
  name: "admin backup",
  summary: "Write a verified copy of everything but the secret key, while the server runs",
  notes: "The same kind of file whatever the database is: a backup of one can be restored into the other.",
  flags: dataFlags,
  words: [file],
  examples: [`${brand.executable} admin backup /backup/control-$(date +%F).db`],
  async run(context) {
    const { settings, words, output } = context;
    const [path = ""] = words;
    if (settings.dryRun) return output.plan([planFile(resolve(path), "", 0o600, { secret: true })]);
    const { makeBackup } = await import("../../server/backup/backup.ts");
    const made = await onData(context, (admin) => makeBackup(admin, path));
    output.result(
      { ...made },
      `Wrote and verified ${made.file}: ${made.organizations} organizations, ${made.nodes} nodes, ${made.bytes} bytes\n` +
        "The secret key is not in it: keep a copy of that apart.\n",
    );
  },
};

export const restore: Command = {
  name: "admin restore",
  summary: "Put a backup back; the server must not run",
  notes:
    "Needs the secret key that belongs to the backup. With --replace the present database is set aside, and what was " +
    "revoked in it (nodes and their groups, tokens, members, invitations, accounts, webhooks) stays revoked. Everybody " +
    "signs in again.",
  flags: {
    replace: { type: "boolean", description: "Set the present database aside" },
    ...dataFlags,
  },
  words: [file],
  examples: [`${brand.executable} admin restore /backup/control-2026-11-21.db`],
  async run(context) {
    const { system, values, words, output } = context;
    if (await onlyPlanned(context)) return;
    const { restoreBackup } = await import("../../server/backup/restore.ts");
    const options = await readDataOptions(values, system);
    const restored = await restoreBackup(options, words[0] ?? "", values.on("replace"), system);
    const {
      organizations,
      nodes,
      set_aside,
      revoked_nodes = 0,
      lost_nodes = [],
      authorities_lost = [],
    } = restored;
    const lines = [
      `Restored ${organizations} organizations and ${nodes} nodes`,
      ...(set_aside === undefined ? [] : [`The former database is ${set_aside}`]),
      ...(revoked_nodes === 0 ? [] : [`${revoked_nodes} nodes that were revoked since stay revoked`]),
      ...(lost_nodes.length === 0
        ? []
        : [
            `Registered since: ${lost_nodes.join(", ")}. Register each again, with a token of \`${brand.executable} admin token create ORG --node NAME\`.`,
          ]),
      ...authorities_lost.map(
        (org) =>
          `The CA of ${org} was changed since, and the one before is trusted again: \`${brand.executable} admin ca rotate ${org}\` replaces it`,
      ),
    ];
    output.result({ ...restored }, `${lines.join("\n")}\n`);
  },
};
