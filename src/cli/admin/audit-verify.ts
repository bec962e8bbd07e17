// `agent admin audit verify`: verifies that the audit log is unchanged.

import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import { onData } from "./data.ts";
import { tableLine } from "../../base/log.ts";
import type { Implementation } from "../command.ts";
import { valueFlag } from "../values.ts";

export const verify: Implementation = {
  notes:
    "Prints the hash of the last event of each chain. Keep a copy elsewhere: as long as the log holds an event with\n" +
    "this hash, no event before it was changed. Verifies all chains to their ends, and lists each place where one is\n" +
    "broken, with a hash of what stands there now. Exit status 1 for a break whose hash is not given with --known.\n" +
    "If old events are in archives, it prints the key of their signatures too: keep it with the hashes. Give the\n" +
    "archives of an organization with --archive to verify them, up to where the chain in the database begins.",
  args: {
    archive: valueFlag("FILE", "Verify this archive of events, too (repeatable)", { repeatable: true }),
    known: valueFlag("HASH", "Accept this break, which you have examined, as it is now (repeatable)", {
      repeatable: true,
    }),
  },
  examples: [
    `${brand.executable} admin audit verify`,
    `${brand.executable} admin audit verify --archive events-1-1-2000.jsonl`,
  ],
  async run(context) {
    const files = context.values.list("archive");
    const known = new Set(context.values.list("known"));
    const { faultsIn, verifyChains } = await import("../../server/audit/verify.ts");
    const { readPublicArchiveKey } = await import("../../server/audit/archive-key.ts");
    const { verifyArchives } = await import("../../server/retention/verify-archives.ts");
    const { chains, archives, key } = await onData(context, async ({ db, secretKey }) => {
      const found = await verifyChains(db, secretKey);
      const publicKey = await readPublicArchiveKey(db, secretKey);
      return { chains: found, key: publicKey, archives: verifyArchives(files, found, publicKey, known) };
    });
    const chainLines = chains.map(({ organization, events, head, archived }) => {
      const before = archived === null ? [] : [`before: ${archived.file}`];
      return tableLine([organization ?? "(operator)", `${events} events`, head, ...before]);
    });
    const archiveLines = archives.verified.map(({ file, events, last_hash, next }) => {
      const continuation = next === null ? "the archive after it is not given" : `continued by ${next}`;
      return tableLine([file, `${events} events`, last_hash, continuation]);
    });
    const keyLine = key === undefined ? "" : tableLine(["archive key (Ed25519)", key]);
    const table = [...chainLines, ...archiveLines, keyLine].join("");
    const faults = [...faultsIn(chains, known), ...archives.faults];
    if (faults.length > 0) {
      if (!context.output.json) context.output.say(table.trimEnd());
      throw new AppError("failed", "The audit log was changed", { errors: { changed: faults }, hint });
    }
    const shown = chains.map(({ organization, events, head, breaks, archived }) => ({
      organization,
      events,
      head,
      breaks: breaks.map(({ event, hash }) => ({ event, hash })),
      archive: archived?.file ?? null,
    }));
    context.output.result({ chains: shown, archives: archives.verified, archive_key: key ?? null }, table);
  },
};

const hint =
  "Compare it with a backup. Events that webhooks delivered hold the original hashes, too. If you know why a break is there, " +
  "accept it as it is now with --known and the hash in brackets: a later change is then still found.";
