// Remembers which files each node was sent, so that an administrator can see what its next configuration changes.

import { messageOf } from "../../../base/errors.ts";
import type { NodeFiles, Outline } from "../../config/node-files.ts";
import type { ServerOptions } from "../../options.ts";
import { makeBoundedCache } from "../../config/bounded-cache.ts";
import type { Reader, Transaction } from "../../store/database.ts";
import type { NodeRecord } from "../../store/nodes.ts";
import { queryNumber, type TableRow } from "../../store/table.ts";
import { sentConfigs, sentFiles } from "../../store/tables/nodes.ts";

type SentNode = Pick<NodeRecord, "id" | "orgId" | "appliedConfigVersion">;
type SentFilesRow = TableRow<typeof sentFiles>;
type Sent = Pick<NodeFiles, "configVersion" | "outline">;

export type SentFiles = {
  /** Called before the files leave: without the note, later comparisons would be with files that the node no longer has. */
  note(node: SentNode, files: Sent): Promise<void>;
  /** Called for a node that has these files already: those that it was sent last may be others, which it never applied. */
  noteKept(node: SentNode, files: Sent): Promise<void>;
};

const hourMs = 3_600_000;
/** Maximum characters of a configuration that is stored: packing it blocks the event loop. */
export const maxConfigLength = 256 * 1024;
/** Maximum configurations of an organization. Usually nodes share a few. */
const maxConfigs = 1000;

export function makeSentFiles({ db, system, log }: Pick<ServerOptions, "db" | "system" | "log">): SentFiles {
  /** Configurations that are stored, with the hour in which that was checked last. */
  const known = makeBoundedCache<number>(10_000);
  let isFailing = false;
  return {
    async noteKept(node, files) {
      const { configDigest, others } = files.outline;
      const row = await sentFiles.find(db, { nodeId: node.id });
      if (row === undefined || (row.configDigest === configDigest && row.others === others)) return;
      await this.note(node, files);
    },
    async note(node, { configVersion, outline }) {
      const now = system.now();
      const hour = now - (now % hourMs);
      const name = `${node.orgId} ${outline.configDigest}`;
      try {
        const packed = known.get(name) === hour ? undefined : await pack(outline);
        await db.writeFor("rows", async (tx) => {
          if (packed !== undefined) await storeConfig(tx, node.orgId, outline.configDigest, packed, hour);
          await tx.run(upsert, [
            node.id,
            node.orgId,
            configVersion,
            outline.configDigest,
            outline.others,
            now,
            node.appliedConfigVersion ?? -1,
          ]);
        });
        known.set(name, hour, 1);
        isFailing = false;
      } catch (error) {
        // A node must get its configuration, and the revocations in it, even while the database refuses writes.
        if (!isFailing)
          log.warn("Cannot note which files a node was sent; `admin diff` may compare with older ones", {
            reason: messageOf(error),
          });
        isFailing = true;
      }
    },
  };
}

/**
 * $1 to $6: the columns of the new files. $7: the version that the node applied, as it said; -1: none. If the node had applied the
 * files that it was sent last, these become the former ones, and the time starts anew. Otherwise the former files and the time stay:
 * `sent_at` is when the node was first sent files that it has not applied.
 */
const upsert = `INSERT INTO sent_files (node_id, org_id, version, config_digest, others, sent_at)
  VALUES ($1, $2, $3, $4, $5, $6)
  ON CONFLICT (node_id) DO UPDATE SET
    former_version = CASE WHEN $7 >= sent_files.version THEN sent_files.version ELSE sent_files.former_version END,
    former_digest = CASE WHEN $7 >= sent_files.version THEN sent_files.config_digest ELSE sent_files.former_digest END,
    former_others = CASE WHEN $7 >= sent_files.version THEN sent_files.others ELSE sent_files.former_others END,
    version = excluded.version, config_digest = excluded.config_digest, others = excluded.others,
    sent_at = CASE WHEN $7 >= sent_files.version THEN excluded.sent_at ELSE sent_files.sent_at END`;

/** gzip in base64; undefined if the text is too long to be stored. */
async function pack({ config }: Outline): Promise<string | undefined> {
  const text = await config();
  return text.length > maxConfigLength ? undefined : Buffer.from(Bun.gzipSync(text)).toString("base64");
}

/** `sentAt`: the beginning of the hour, so that the row of a configuration changes once an hour at most. */
async function storeConfig(
  tx: Transaction,
  orgId: number,
  digest: string,
  packed: string,
  sentAt: number,
): Promise<void> {
  if ((await sentConfigs.update(tx, { orgId, digest }, { sentAt })) > 0) return;
  const stored = "SELECT count(*) AS n FROM sent_configs WHERE org_id = $1";
  if ((await queryNumber(tx, stored, [orgId])) >= maxConfigs) return;
  await sentConfigs.upsert(tx, { orgId, digest, packed, sentAt }, "ON CONFLICT (org_id, digest) DO NOTHING");
}

/** Since when the node has files that it has not applied, ms; null if it has applied what it was sent. */
export async function notAppliedSince(
  reader: Reader,
  { id, appliedConfigVersion: applied }: SentNode,
): Promise<number | null> {
  const row = await sentFiles.find(reader, { nodeId: id });
  return row === undefined || (applied ?? 0) >= row.version ? null : row.sentAt;
}

/** The files that a node has. `config`: config.yml, undefined if its text was not stored. `digest`, `others`: as in Outline. */
export type FilesOnNode = { version: number; digest: string; config: string | undefined; others: string };

/** Undefined if the control plane does not know which files the node has. */
export async function filesOnNode(
  reader: Reader,
  { id, orgId, appliedConfigVersion: applied }: SentNode,
): Promise<FilesOnNode | undefined> {
  const row = await sentFiles.find(reader, { nodeId: id });
  if (row === undefined || applied === null) return undefined;
  const outline = applied >= row.version ? sentLast(row) : sentBefore(row);
  if (outline === undefined) return undefined;
  const stored = await sentConfigs.find(reader, { orgId, digest: outline.digest });
  const config = stored && Buffer.from(Bun.gunzipSync(Buffer.from(stored.packed, "base64"))).toString("utf8");
  return { ...outline, config };
}

type FilesOutline = Omit<FilesOnNode, "config">;

function sentLast({ version, configDigest, others }: SentFilesRow): FilesOutline {
  return { version, digest: configDigest, others };
}

/**
 * The files that the node had applied when it was first sent newer ones; undefined if there were none. It is taken to have them until
 * it reports the version of the last ones.
 */
function sentBefore({ formerVersion, formerDigest, formerOthers }: SentFilesRow): FilesOutline | undefined {
  if (formerVersion === null || formerDigest === null || formerOthers === null) return undefined;
  return { version: formerVersion, digest: formerDigest, others: formerOthers };
}
