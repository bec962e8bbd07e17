// Finds CAs that end soon and were not replaced.

import { formatTime } from "../../base/quantities.ts";
import { brand } from "../../brand.ts";
import { queryAll } from "../store/table.ts";
import { authorities } from "../store/tables/certificates.ts";
import { dayMs, type Finder } from "./finder.ts";

const ending = authorities.pick("kind", "offline", "fingerprint", "notAfter");
/** An offline CA is never active. It counts as replaced if there is one that ends later. */
const endingBefore = `SELECT ${ending.select("a")} FROM authorities a WHERE a.org_id = $1 AND a.not_after < $2
  AND (a.state = 'active' OR (a.offline = 1 AND a.retired_at IS NULL AND NOT EXISTS (
    SELECT 1 FROM authorities later WHERE later.org_id = a.org_id AND later.offline = 1
      AND later.retired_at IS NULL AND later.not_after > a.not_after)))
  ORDER BY a.not_after`;

const whatEnds = {
  overlay: "All nodes lose each other then.",
  x509: "The X.509 certificates of all nodes (node.crt) end then.",
  offline:
    "The nodes that it certified lose then what only it certifies; those that enforce a seal lose others.",
};

/** `value`: days before the end, by the organization's rules of alarms. */
export const findEndingCas: Finder = async ({ db, org, now, value }) => {
  const found = await queryAll(db, ending, endingBefore, [org.id, now + value * dayMs]);
  return {
    keys: found.map(({ fingerprint }) => fingerprint),
    describe(newKeys) {
      const endingCas = found.filter(({ fingerprint }) => newKeys.includes(fingerprint));
      const lines = endingCas.map(({ kind, offline, notAfter }) => {
        const what = offline ? "offline" : kind;
        return `${what}: ${formatTime(notAfter)}. ${whatEnds[what]}`;
      });
      const nextOffline = `A signer makes the next one: \`${brand.executable} admin seal ca ${org.slug} FILE\`.`;
      return {
        title: `A CA of ${org.slug} ends soon, and was not replaced`,
        text: [
          ...lines,
          ...(endingCas.some(({ offline }) => offline) ? [nextOffline] : []),
          `See: \`${brand.executable} admin ca show ${org.slug}\`.`,
        ].join("\n"),
        isUrgent: true,
        since: now,
      };
    },
  };
};
