// `agent admin audit verify`: verifies that the audit log is unchanged.

import { brand } from "../../brand.ts";
import { AppError } from "../../errors.ts";
import { onData } from "./data.ts";
import { tableLine } from "../../log.ts";
import type { Implementation } from "../command.ts";
import { targetFlags } from "./target.ts";

export const verify: Implementation = {
  notes:
    "Prints the hash of the last event of each chain. Keep a copy elsewhere: as long as the log holds an event with\n" +
    "this hash, no event before it was changed. Exit status 1 if a chain is broken.\n" +
    "If old events are in archives, it prints the key of their signatures too: keep it with the hashes. Give the\n" +
    "archives of an organization with --archive to verify them, up to where the chain in the database begins.",
  args: {
    archive: {
      type: "string",
      valueHint: "FILE",
      repeatable: true,
      description: "Verify this archive of events, too (repeatable)",
    },
    ...targetFlags,
  },
  examples: [
    `${brand.executable} admin audit verify`,
    `${brand.executable} admin audit verify --archive events-1-1-2000.jsonl`,
  ],
  async run(context) {
    const files = context.values.list("archive");
    const { faultIn, verifyChains } = await import("../../server/audit/read.ts");
    const { readArchiveKey } = await import("../../server/audit/archive-key.ts");
    const { verifyArchives } = await import("../../server/retention/verify-archives.ts");
    const { chains, archives, key } = await onData(context, async ({ db, secretKey }) => {
      const found = await verifyChains(db, secretKey);
      const publicKey = await readArchiveKey(db, secretKey);
      return { chains: found, key: publicKey, archives: verifyArchives(files, found, publicKey) };
    });
    const fault = faultIn(chains);
    if (fault !== undefined) {
      throw new AppError("failed", `The audit log was changed: ${fault}`, {
        hint: "Compare it with a backup. Events that webhooks delivered hold the original hashes, too.",
      });
    }
    const lines = chains.map(({ organization, events, head, archived }) => {
      const before = archived === null ? [] : [`before: ${archived.file}`];
      return tableLine([organization ?? "(operator)", `${events} events`, head, ...before]);
    });
    const verified = archives.map(({ file, events, last_hash, next }) => {
      const then = next === null ? "the archive after it is not given" : `continued by ${next}`;
      return tableLine([file, `${events} events`, last_hash, then]);
    });
    const keyLine = key === undefined ? "" : tableLine(["archive key (Ed25519)", key]);
    const shown = chains.map(({ organization, events, head, archived }) => ({
      organization,
      events,
      head,
      archive: archived?.file ?? null,
    }));
    const result = { chains: shown, archives, archive_key: key ?? null };
    context.output.result(result, [...lines, ...verified, keyLine].join(""));
  },
};
