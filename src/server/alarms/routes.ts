// Handlers of src/api/webhooks/alarms.ts.

import type { Alarm, alarmsApi } from "../../api/webhooks/alarms.ts";
import { AppError } from "../../base/errors.ts";
import { formatTime, timeOrNull } from "../../base/quantities.ts";
import { actorOf, record } from "../audit/record.ts";
import type { Handlers } from "../http/attach.ts";
import type { Services } from "../services.ts";
import { queryAll } from "../store/table.ts";
import { alarms, webhooks, type AlarmRow } from "../store/tables/webhooks.ts";
import { writeAsAdmin } from "../require-role.ts";
import { isSubscribed } from "../webhooks/outbox.ts";
import { readWords } from "./present-title.ts";

const maxListed = 100;
const listed = `SELECT ${alarms.select()} FROM alarms WHERE org_id = $1
  ORDER BY CASE WHEN ended_at IS NULL THEN 0 ELSE 1 END, id DESC LIMIT ${maxListed}`;

export const alarmHandlers = ({ db, system }: Services): Handlers<typeof alarmsApi> => ({
  list: async ({ org }) => {
    const found = await queryAll(db, alarms, listed, [org.id]);
    const wordsNow = await readWords(db, found);
    return { body: found.map((each) => showAlarm({ ...each, ...wordsNow(each) })) };
  },
  async retrieve(call) {
    const found = await alarms.find(db, { id: call.id(), orgId: call.org.id });
    if (found === undefined)
      throw new AppError("not_found", "There is no such alarm. They are kept for 90 days after their end.");
    const wordsNow = await readWords(db, [found]);
    return { body: showAlarm({ ...found, ...wordsNow(found) }) };
  },
  async test(call) {
    const actor = actorOf(call);
    const sent = await writeAsAdmin(db, call.org.id, actor, async (tx) => {
      const after = {
        name: `A test of the alarms of ${call.org.slug}`,
        text: "If you read this, alarms arrive here.",
      };
      await record(tx, {
        orgId: call.org.id,
        at: system.now(),
        type: "alarm.tested",
        actor,
        subject: "alarm/test",
        after,
      });
      const present = await webhooks.all(tx, { orgId: call.org.id, deletedAt: null });
      return present.filter(({ events }) => isSubscribed(events, "alarm.tested")).length;
    });
    return { body: { webhooks: sent } };
  },
});

function showAlarm(row: AlarmRow): Alarm {
  const { id, kind, title, text, isUrgent, isFlapping } = row;
  // Keys of what the alarm is about: mostly ids of nodes. Others, such as fingerprints of CAs, are left out.
  const nodeIds = [...row.heads, ...row.rest].filter((key) => /^\d+$/.test(key)).map(Number);
  return {
    id,
    kind: kind as Alarm["kind"],
    title,
    text,
    urgent: isUrgent,
    flapping: isFlapping,
    nodes: nodeIds,
    since: formatTime(row.since),
    raised_at: formatTime(row.raisedAt),
    ended_at: timeOrNull(row.endedAt),
  };
}
