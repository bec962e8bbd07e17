// `agent admin backup` and `agent admin restore`.

import { resolve } from "node:path";
import { brand } from "../../brand.ts";
import { countOf } from "../../base/quantities.ts";
import { planReplaced } from "../../base/plan/plan-file.ts";
import { onData, onlyPlanned, requireLocalTarget } from "./data.ts";
import type { Implementation } from "../command.ts";
import { readDataOptions } from "../server/server-flags.ts";
import { sayTarget } from "./target.ts";
import { switchFlag, wordArg } from "../values.ts";
import type { Restored } from "../../server/backup/restore.ts";

/** A line about a broken audit log, which does not stop a backup: it may be the only copy. */
function faultLines(faults: readonly string[]): string {
  if (faults.length === 0) return "";
  const next = `Examine it: \`${brand.executable} admin audit verify\`.`;
  return `The audit log was changed: ${faults.slice(0, 3).join("; ")}${faults.length > 3 ? "; and more" : ""}. ${next}\n`;
}

const fileArg = { FILE: wordArg("The backup file") };

export const backup: Implementation = {
  notes:
    "A broken audit log is no reason to fail: the output says what was found in it (`audit_faults` with --json).\n" +
    "The secret key is not in the backup: copy it separately. The file does not depend on the kind of database: a backup\n" +
    "of SQLite can be restored into PostgreSQL, and the reverse.",
  args: fileArg,
  examples: [`${brand.executable} admin backup /backup/control-$(date +%F).db`],
  async run(context) {
    const { words, output } = context;
    const [path = ""] = words;
    const { makeBackup } = await import("../../server/backup/backup.ts");
    const { requireFreePlace } = await import("../../base/files.ts");
    requireFreePlace(path);
    if (await onlyPlanned(context, { more: [planReplaced(resolve(path), 0o600)] })) return;
    // `made.unrecorded`: why the database has no record of this backup, which is whole all the same.
    const made = await onData(context, (admin) => makeBackup(admin, path));
    const { secretKeyPath } = await import("../../server/store/secret-keys.ts");
    const key = secretKeyPath(await readDataOptions(context.values, context.system), context.system);
    output.result(
      { ...made },
      faultLines(made.audit_faults) +
        (made.unrecorded === undefined
          ? ""
          : `The control plane does not know of this backup. ${made.unrecorded}\n`) +
        `Wrote and verified ${made.file}: ${countOf(made.organizations, "organization")}, ${countOf(made.nodes, "node")}, ${made.bytes} bytes\n` +
        `The backup does not hold the secret key, without which it is useless. Keep a copy of ${key} in another place.\n`,
    );
  },
};

export const restore: Implementation = {
  notes:
    "Needs the secret key that belongs to the backup: it also proves that this control plane made the file. Backups of\n" +
    "0.1.0 lack this proof and need --unauthenticated. --replace keeps the old database as a file. Everything revoked or\n" +
    "deleted since the backup (nodes and their groups, firewall rules, tokens, members, invitations, users, webhooks) stays\n" +
    "revoked or deleted. Overrides, names, descriptions and the roles of lighthouses and relays are those of the backup.\n" +
    "All users must sign in again.",
  args: {
    ...fileArg,
    replace: switchFlag("Replace the current database, and keep it as a file"),
    unauthenticated: switchFlag(
      "Restore a file that this control plane may not have made (backups of 0.1.0 too)",
    ),
  },
  examples: [`${brand.executable} admin restore /backup/control-2026-11-21.db`],
  async run(context) {
    const { settings, system, values, words, output } = context;
    const { planRestore, restoreBackup } = await import("../../server/backup/restore.ts");
    const target = await requireLocalTarget(context, { mayCreateData: true });
    const { options } = target;
    const [file = ""] = words;
    const permitted = { replace: values.on("replace"), unauthenticated: values.on("unauthenticated") };
    if (settings.dryRun) return output.plan(planRestore(options, file, permitted.replace, system));
    sayTarget(target, context);
    const restored = await restoreBackup(options, file, permitted, system);
    output.result(
      { ...restored },
      `${faultLines(restored.audit_faults)}${restoredLines(restored).join("\n")}\n`,
    );
  },
};

/** What was restored, and what an administrator must check or do again. */
function restoredLines(restored: Restored): string[] {
  // What is absent in the report has not happened.
  const { organizations, nodes, as_of, set_aside, staff } = restored;
  const { revoked_nodes = 0, register_again = [], authorities_lost = [] } = restored;
  const { deleted_rules = 0, lost_rules = 0, overrides_back = [], staff_missing = false } = restored;
  const { seals_kept = [], networks6_lost = [], unreadable } = restored;
  const isNothingCarried = set_aside === undefined || unreadable !== undefined;
  const lineIf = (condition: boolean, line: string) => (condition ? [line] : []);
  return [
    `Restored ${countOf(organizations, "organization")} and ${countOf(nodes, "node")}`,
    ...lineIf(
      staff !== undefined,
      `The file was not authenticated. Check its staff users, who can do everything: ${staff?.join(", ") || "none"}`,
    ),
    ...lineIf(unreadable !== undefined, `Nothing could be carried over from the old database: ${unreadable}`),
    // Without the old database, what happened since the backup is unknown.
    ...lineIf(
      isNothingCarried && as_of !== null,
      `The data is of ${as_of}. What was revoked, deleted or rotated after that is valid again: revoke and delete it again before you start the server`,
    ),
    ...lineIf(set_aside !== undefined, `The old database is now ${set_aside}`),
    ...lineIf(revoked_nodes > 0, `${revoked_nodes} nodes revoked since the backup stay revoked`),
    ...lineIf(
      register_again.length > 0,
      `Registered since the backup, so register them again with a token of \`${brand.executable} admin token create ORG --node NAME\`: ${register_again.join(", ")}`,
    ),
    ...lineIf(deleted_rules > 0, `${deleted_rules} firewall rules deleted since the backup stay deleted`),
    ...lineIf(
      lost_rules > 0,
      `${lost_rules} firewall rules created since the backup are lost. Create those again that you need; the old database holds them`,
    ),
    ...lineIf(
      overrides_back.length > 0,
      `Overrides changed since the backup, so check these, which are those of the backup again: ${overrides_back.join(", ")}`,
    ),
    ...lineIf(
      staff_missing,
      `All staff users of the backup were disabled after it. Enable one: \`${brand.executable} admin user enable EMAIL\`, or create one: \`${brand.executable} admin user create EMAIL --staff\``,
    ),
    ...networks6_lost.map(
      (org) =>
        `${org} lost its IPv6 network, which was added after the backup. Add it again: \`${brand.executable} admin org update ${org} --network6 CIDR\``,
    ),
    ...seals_kept.map(
      (org) =>
        `${org} keeps the seal that was published after the backup, since its nodes hold it. See what differs from it now: \`${brand.executable} admin seal show ${org}\``,
    ),
    ...authorities_lost.map(
      (org) =>
        `The CA of ${org} was replaced after the backup, and its predecessor is trusted again. Replace it: \`${brand.executable} admin ca rotate ${org}\``,
    ),
  ];
}
