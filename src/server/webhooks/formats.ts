// Puts events into the words and bodies that receivers understand: mail, syslog and chats. Chats want the text in a field of their
// own, and refuse what they do not know. Also finds out when the quiet hours of a webhook end.

import { cutText } from "../../base/text.ts";
import { eventKinds, eventNouns, type Event } from "../../api/events.ts";
import type { WebhookFormat } from "../../api/webhooks/formats.ts";
import { quietSpan } from "../../api/webhooks/webhooks.ts";

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

type HttpFormat = Exclude<WebhookFormat, "mail" | "syslog" | "json">;

/** For chats that show Markdown: a text may hold a line of a node's log, and its links must not hide where they lead. */
const withoutLinks = (text: string) => text.replaceAll("](", "]\u200B(");

/** The lines of a text below its title. */
const belowTitle = (text: string) => text.split("\n").slice(1);

/** JSON for ntfy goes to the root of the server, and names its topic. Throws URIError if the topic cannot be decoded. */
export function ntfyTarget(url: URL): { root: URL; topic: string } {
  const [, parentPath = "/", topic = ""] = /^(.*\/)([^/]*)\/?$/.exec(url.pathname) ?? [];
  const root = new URL(url);
  root.pathname = parentPath;
  return { root, topic: decodeURIComponent(topic) };
}

/** The request for a chat. */
export const chatRequests: Readonly<
  Record<HttpFormat, (url: URL, eventText: EventText, urgent: boolean) => { url: URL; body: unknown }>
> = {
  // https://docs.slack.dev/messaging/formatting-message-text: these three characters are its markup.
  slack: (url, { text }) => ({
    url,
    body: { text: text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;") },
  }),
  // A mention such as @all would wake everybody.
  mattermost: (url, { text }) => ({ url, body: { text: withoutLinks(text).replaceAll("@", "@\u200B") } }),
  // Workflows of Teams take adaptive cards alone.
  teams: (url, { title, text }) => ({
    url,
    body: {
      type: "message",
      attachments: [
        {
          contentType: "application/vnd.microsoft.card.adaptive",
          contentUrl: null,
          content: {
            $schema: "http://adaptivecards.io/schemas/adaptive-card.json",
            type: "AdaptiveCard",
            version: "1.4",
            body: [
              { type: "TextBlock", text: withoutLinks(title), weight: "Bolder", wrap: true },
              // Teams reads lines as Markdown, which needs an empty line for a line break.
              { type: "TextBlock", text: belowTitle(withoutLinks(text)).join("\n\n"), wrap: true },
            ],
          },
        },
      ],
    },
  }),
  discord: (url, { text }) => ({
    url,
    body: { content: withoutLinks(text), allowed_mentions: { parse: [] } },
  }),
  ntfy(url, { title, text }, urgent) {
    const { root, topic } = ntfyTarget(url);
    const message = belowTitle(text).join("\n");
    return { url: root, body: { topic, title, message, priority: urgent ? 5 : 3 } };
  },
};

export const isUrgentEvent = ({ after }: Pick<Event, "after">): boolean => after?.["urgent"] === true;

/** The end of the quiet hours, ms; undefined outside of them. */
export function quietUntil(hours: string | null, now: number): number | undefined {
  const span = hours === null ? undefined : quietSpan(hours);
  if (span === undefined) return undefined;
  const { from, to, zone } = span;
  const clock = new Intl.DateTimeFormat("en-GB", {
    timeZone: zone,
    hour: "2-digit",
    minute: "2-digit",
    hourCycle: "h23",
  });
  /** The minute of the day in the zone. */
  const minuteAt = (ms: number) => {
    const [hour = 0, minute = 0] = clock.format(ms).split(":").map(Number);
    return 60 * hour + minute;
  };
  // `from` after `to`: over midnight.
  const isQuiet = (minute: number) =>
    from < to ? minute >= from && minute < to : minute >= from || minute < to;
  const minuteNow = minuteAt(now);
  if (!isQuiet(minuteNow)) return undefined;
  const beginOfMinute = now - (now % minuteMs);
  const end = beginOfMinute + ((to - minuteNow + minutesOfDay) % minutesOfDay) * minuteMs;
  if (minuteAt(end) === to) return end;
  // Daylight saving time begins or ends in between: search minute by minute.
  let next = beginOfMinute;
  while (isQuiet(minuteAt(next))) next += minuteMs;
  return next;
}

const minuteMs = 60_000;
const minutesOfDay = 1440;
