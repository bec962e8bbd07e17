// Remembers which files each node was sent, so that an administrator can see what its next configuration changes.

import { messageOf } from "../../../base/errors.ts";
import type { NodeFiles, Outline } from "../../config/node-files.ts";
import type { ServerOptions } from "../../options.ts";
import { makeBoundedCache } from "../../config/bounded-cache.ts";
import type { Reader, Transaction } from "../../store/database.ts";
import type { NodeRecord } from "../../store/nodes.ts";
import { queryNumber } from "../../store/table.ts";
import { sentConfigs, sentFiles } from "../../store/tables/nodes.ts";

type SentNode = Pick<NodeRecord, "id" | "orgId" | "appliedConfigVersion">;
type Sent = Pick<NodeFiles, "configVersion" | "outline">;

export type SentFiles = {
  /** Call it before the files leave: an answer whose note is missing would make later comparisons wrong. */
  note(node: SentNode, files: Sent): Promise<void>;
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
 * $7: the version that the node applied, as it said. The files that it had before the new ones are kept, and the time at
 * which it was first sent files that it has not applied.
 */
const upsert = `INSERT INTO sent_files (node_id, org_id, version, config_digest, others, sent_at)
  VALUES ($1, $2, $3, $4, $5, $6)
  ON CONFLICT (node_id) DO UPDATE SET
    ${["version", "digest", "others"]
      .map((each) => {
        const column = each === "digest" ? "config_digest" : each;
        return `former_${each} = CASE WHEN $7 >= sent_files.version THEN sent_files.${column} ELSE sent_files.former_${each} END`;
      })
      .join(", ")},
    version = excluded.version, config_digest = excluded.config_digest, others = excluded.others,
    sent_at = CASE WHEN $7 >= sent_files.version THEN excluded.sent_at ELSE sent_files.sent_at END`;

async function pack({ config }: Outline): Promise<string | undefined> {
  const text = await config();
  return text.length > maxConfigLength ? undefined : Buffer.from(Bun.gzipSync(text)).toString("base64");
}

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

/** The files that a node has: `config` is undefined if the text was not kept. */
export type Present = { version: number; digest: string; config: string | undefined; others: string };

/** Undefined if the control plane does not know which files the node has. */
export async function filesInForce(
  reader: Reader,
  { id, orgId, appliedConfigVersion: applied }: SentNode,
): Promise<Present | undefined> {
  const row = await sentFiles.find(reader, { nodeId: id });
  if (row === undefined || applied === null) return undefined;
  const { version, configDigest, others, formerVersion, formerDigest, formerOthers } = row;
  const has =
    applied >= version
      ? { version, digest: configDigest, others }
      : formerVersion === null || formerDigest === null || formerOthers === null
        ? undefined
        : { version: formerVersion, digest: formerDigest, others: formerOthers };
  if (has === undefined) return undefined;
  const stored = await sentConfigs.find(reader, { orgId, digest: has.digest });
  const config = stored && Buffer.from(Bun.gunzipSync(Buffer.from(stored.packed, "base64"))).toString("utf8");
  return { ...has, config };
}
