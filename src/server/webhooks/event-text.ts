// Puts events into words, for receivers that show text: chats, mail and syslog.

import { cutText } from "../../base/text.ts";
import { eventKinds, eventNouns, type Event } from "../../api/events.ts";

/** An event for receivers that show text. The first line of `text` is the whole title. `id`: the same in retries. */
export type EventText = { title: string; text: string; id: string };

/** Characters of one message: Discord takes 2000, and ntfy 4096 bytes. */
const maxLength = 1800;
const actors: Readonly<Record<string, string>> = {
  person: "A user",
  service: "A service token",
  node: "A node",
  operator: "The operator",
  server: "The control plane",
  nobody: "Somebody",
};

/** An event in words. Alarms have a title and a text of their own, others the sentence of their type (`eventKinds`). */
export function textOfEvent(
  { type, subject, actor, before, after }: Event,
  org: string,
  id: string,
): EventText {
  const [kind = "", subjectId = ""] = subject.split(/\/(.*)/s);
  const nameIn = (details: Event["after"]) =>
    typeof details?.["name"] === "string" ? details["name"] : undefined;
  const name = nameIn(after) ?? nameIn(before) ?? subjectId;
  const noun = (eventNouns as Readonly<Record<string, string>>)[kind] ?? kind;
  const words = (eventKinds as Readonly<Record<string, { words: string }>>)[type]?.words ?? `${type}: #`;
  /** What the signs in the words of `eventKinds` stand for. */
  const placeholders: Readonly<Record<string, string>> = {
    "@": actors[actor.kind] ?? actor.kind,
    "#": name,
    "&": `the ${noun} ${name}`,
  };
  const isAlarm = kind === "alarm";
  const sentence = isAlarm ? name : words.replaceAll(/[@#&]/g, (sign) => placeholders[sign] ?? sign);
  const consequences = isAlarm && typeof after?.["text"] === "string" ? [after["text"]] : [];
  // A test alarm has no number.
  const alarm = isAlarm && subjectId !== "test" ? [`alarm ${subjectId}`] : [];
  const origin = [`Organization ${org}`, ...alarm, id].join(", ");
  const text = cutText([sentence, ...consequences, origin].join("\n"), maxLength);
  return { title: cutText(sentence, 200), text, id };
}

export const isUrgentEvent = ({ after }: Pick<Event, "after">): boolean => after?.["urgent"] === true;
