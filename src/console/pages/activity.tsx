// Everything that was changed, as it happens: filters in the address, what changed, export, and the chain of hashes.

import { useEffect, useMemo, useState } from "preact/hooks";
import { actorOf, type Names } from "../activity/actor.ts";
import { changesOf } from "../activity/event-changes.ts";
import {
  foundWords,
  exportName,
  failures,
  filterKeys,
  filterOf,
  isFailure,
  makeMatch,
  parts,
  spanOf,
  subjectOf,
  thingsOf,
  type Filter,
  type Things,
} from "../activity/event-filter.ts";
import { weekOf } from "../activity/week.ts";
import { dayOf } from "../words/ago.ts";
import { apiPath } from "../../api/endpoint.ts";
import { eventsApi, type Event as AuditEvent } from "../../api/events.ts";
import { organizationProviderSettings } from "../../api/providers/providers.ts";
import { userSettings } from "../../api/users.ts";
import { webhookSettings } from "../../api/webhooks/webhooks.ts";
import type { Settings } from "../../protocol/settings.ts";
import { organizationSettings } from "../../api/organizations.ts";
import { eventText } from "../activity/event-words.ts";
import { eventsPath, readEvents, useLog, type Log } from "../activity/log.ts";
import { isLive, onEvent } from "../contact/live.ts";
import { me, organization, currentSlug } from "../contact/me.ts";
import { useMemberNames, useUserNames } from "../activity/member-names.ts";
import { refresh, useResource } from "../contact/resource.ts";
import { hrefWith, query, setQuery } from "../frame/router.ts";
import { commandText } from "../words/terminal.ts";
import { shortDay } from "../words/times.ts";
import { Button } from "../ui/button.tsx";
import { Verification } from "../ui/verify-chain.tsx";
import { Events } from "../activity/events.tsx";
import { Bars } from "../ui/figures/bars.tsx";
import { Page } from "../ui/page.tsx";
import { Field, valueOf } from "../ui/field.tsx";
import { Empty, Failure, Line, Loading } from "../ui/parts.tsx";
import { Chip, Pill } from "../ui/tag.tsx";
import { tell } from "../ui/toast.tsx";
import { ReadingExport, Search } from "../ui/lists/tools.tsx";
import { plural } from "../words/numbers.ts";

export { eventNames } from "../activity/event-words.ts";

const pageSize = 1000;
/** A search reads back until it has found so many events, or has read so many; then a button goes on. */
const foundAtOnce = 100;
const readAtOnce = 5000;
/** Rows that are drawn at first, and that a press adds. */
const shownAtOnce = 100;
/** The declarations whose fields the events of a type have. */
const settings: Readonly<Record<string, Settings>> = {
  "organization.updated": organizationSettings,
  "provider.updated": organizationProviderSettings,
  "webhook.updated": webhookSettings,
  "user.created": userSettings,
};

const textOf = (details: AuditEvent["after"]) => (details === null ? "" : JSON.stringify(details));

/** The columns of an exported file. */
const columnsFor = (names: Names, things: Things) => [
  { title: "at", text: ({ at }: AuditEvent) => at },
  { title: "type", text: ({ type }: AuditEvent) => type },
  { title: "subject", text: (event: AuditEvent) => subjectOf(event, things) },
  { title: "actor", text: (event: AuditEvent) => actorOf(event, names) },
  {
    title: "changes",
    text: (event: AuditEvent) =>
      changesOf(event)
        .map(
          ({ field, removed, added }) =>
            `${field}: ${[...removed.map((text) => `-${text}`), ...added.map((text) => `+${text}`)].join(" ")}`,
        )
        .join("; "),
  },
  { title: "before", text: ({ before }: AuditEvent) => textOf(before) },
  { title: "after", text: ({ after }: AuditEvent) => textOf(after) },
  { title: "id", text: ({ id }: AuditEvent) => `${id}` },
  { title: "hash", text: ({ hash }: AuditEvent) => hash },
  { title: "sentence", text: sentenceMaker(names, things) },
];

/** Makes the function that says an event as a sentence. */
const sentenceMaker = (names: Names, things: Things) => (event: AuditEvent) =>
  // Without the names of groups of providers: a search and an export have their numbers.
  eventText(event, { names, things, words: new Map() });

export function Activity() {
  const slug = currentSlug.value ?? "";
  const names = useMemberNames(slug);
  return slug === "" ? null : <LogPage key={slug} slug={slug} names={names} />;
}

/** Events that belong to no organization. Only staff get them. */
export function AuditLog() {
  return me.value?.is_staff === true ? (
    <LogOfNone />
  ) : (
    <Page title="Audit log">
      <Empty text="The audit log is for staff." />
    </Page>
  );
}

const LogOfNone = () => <LogPage slug="" names={useUserNames()} />;

/** What the log contains, and what it does not. */
const AboutLog = ({ slug }: { slug: string }) => (
  <p class="quiet">
    {slug === "" ? "What belongs to no organization, such as users. " : ""}Sign-ins that succeed are no
    events: see Account, and <code>agent admin session list</code>.
  </p>
);

const LivePill = () => (
  <span class="no-phone">
    <Pill sign={isLive.value ? "on" : "off"} kind={isLive.value ? "good" : undefined}>
      {isLive.value ? "live" : "not live"}
    </Pill>
  </span>
);

/** `slug`: of the organization; "": events that belong to none. */
function LogPage({ slug, names }: { slug: string; names: Names }) {
  const filter = filterOf(query.value);
  const key = JSON.stringify(filter);
  const span = spanOf(filter);
  const log = useLog(slug, pageSize, span);
  /** A sentence about events that the last export leaves out. */
  const [cut, setCut] = useState("");
  const things = useMemo(() => thingsOf(log.events), [log.events]);
  const found = useMemo(
    () => log.events.filter(makeMatch(filter, names, things, sentenceMaker(names, things))),
    [log.events, names, things, key],
  );
  const { shown, newer, release } = useHeld(found, key);
  const isFiltered = filterKeys.some((each) => filter[each] !== "");
  const { rows, isSearching, isOver, more } = useSearchBack(log, key, isFiltered, shown.length);
  const isFirstRead = log.isReading && (isSearching || log.events.length === 0);
  return (
    <Page
      title={slug === "" ? "Audit log" : "Activity"}
      pill={slug === "" ? null : <LivePill />}
      actions={
        <>
          {slug !== "" && organization.value?.role === "member" ? null : <Verification slug={slug} />}
          <ReadingExport
            read={(read: (count: number) => void) => exportMatching(slug, filter, names, read, setCut)}
          />
        </>
      }
      terminal={{
        command: commandOf(slug),
        call: ["GET", eventsPath(slug, { after: "0", limit: "1000" })],
      }}
    >
      {slug === "" ? null : <Week slug={slug} filter={filter} />}
      <Filters slug={slug} filter={filter} events={log.events} />
      <div>
        <div role="status">{cut === "" ? null : <Cut slug={slug} sentence={cut} />}</div>
        <p class="newer" role="status">
          {newer === 0 ? null : <Button onClick={release}>{newer} newer</Button>}
        </p>
        <Failure error={log.error} />
        {shown.length > 0 ? <Events events={shown.slice(0, rows)} {...{ names, things, settings }} /> : null}
        {shown.length === 0 && isFirstRead ? <Loading rows={20} /> : null}
        {shown.length === 0 && !isFirstRead ? (
          <Empty text={isOver ? "No event matches." : "None of the events that were read matches."} />
        ) : null}
      </div>
      <div class="stackd">
        <span class="group">
          {shown.length > rows || !isOver ? (
            <Button disabled={log.isReading} onClick={more}>
              {isFiltered ? "Look further back" : "Older events"}
            </Button>
          ) : null}
          <span class="quiet" role="status">
            {foundWords({ found: shown.length, read: log.events.length }, { isFiltered, isAll: log.isAll })}
          </span>
        </span>
        <AboutLog slug={slug} />
      </div>
    </Page>
  );
}

/** What an export leaves out, and the command that reads all. */
const Cut = ({ slug, sentence }: { slug: string; sentence: string }) => (
  <>
    <p class="limited">
      <bdi>{sentence}</bdi>
    </p>
    <Line text={`${commandText({ command: commandOf(slug) })} --json --lines 100000 > events.json`} />
  </>
);

const firstGoal = { events: readAtOnce, found: foundAtOnce, rows: shownAtOnce };

/**
 * Reads further back by itself until so many events are found, or read, as the goal says. `key`: of the filters; another
 * one begins anew. `found`: how many are found. `rows`: as many are shown. `isOver`: there is nothing more to read.
 */
function useSearchBack(log: Log, key: string, isFiltered: boolean, found: number) {
  const [wanted, setWanted] = useState({ key, ...firstGoal });
  const goal = wanted.key === key ? wanted : firstGoal;
  const isOver = log.isAll || log.isFull;
  const isSearching = isFiltered && !isOver && found < goal.found && log.events.length < goal.events;
  useEffect(() => {
    if (isSearching && !log.isReading) log.older();
  }, [isSearching, log.isReading, log.events.at(-1)?.id]);
  const more = () => {
    const events = log.events.length + readAtOnce;
    setWanted({ key, events, found: found + foundAtOnce, rows: goal.rows + shownAtOnce });
    if (!isOver) log.older();
  };
  return { rows: goal.rows, isSearching, isOver, more };
}

const hoursPath = (slug: string) => apiPath(eventsApi.hours, { slug });
/** After an event, the hours are read again this much later: once for all events until then. */
const hoursAfterMs = 10_000;

/** The last days by hours: a press leaves the events of these. */
function Week({ slug, filter }: { slug: string; filter: Filter }) {
  const { data } = useHours(slug);
  const { bars, days } = useMemo(() => weekOf(data ?? [], Date.now()), [data]);
  return (
    <Bars
      label="Events by hours, seven days"
      bars={bars}
      places={7 * 24}
      columns={days.map(({ start, spans }, at) => ({
        title: at === days.length - 1 ? "Today" : shortDay(start),
        links: spans.map(({ from, to, count, failures: failed }) => {
          const isOn = filter.from === from && filter.to === to;
          const events = plural(count, "event");
          return {
            href: hrefWith(isOn ? { from: "", to: "" } : { from, to }),
            // `from` and `to` are hours, such as 2026-11-26T08 (event-filter.ts).
            words: `${shortDay(start)}, ${from.slice(-2)}:00 to ${to.slice(-2)}:00: ${events}${failed === 0 ? "" : `, ${failed} of them failures`}${isOn ? "; show all again" : ""}`,
            isOn,
          };
        }),
      }))}
    />
  );
}

/** Read again some time after an event. */
function useHours(slug: string) {
  useEffect(() => {
    if (slug === "") return undefined;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const end = onEvent(() => {
      timer ??= setTimeout(() => {
        timer = undefined;
        void refresh(hoursPath(slug));
      }, hoursAfterMs);
    });
    return () => {
      end();
      clearTimeout(timer);
    };
  }, [slug]);
  return useResource(slug === "" ? "" : hoursPath(slug), { isCalm: true });
}

const commandOf = (slug: string) => ["events", ...(slug === "" ? [] : [slug])];

/** Exports all that the filter covers, also events that the page has not read. */
async function exportMatching(
  slug: string,
  filter: Filter,
  names: Names,
  read: (count: number) => void,
  setCut: (sentence: string) => void,
) {
  const { events, isAll } = await readEvents(slug, spanOf(filter), read);
  const things = thingsOf(events);
  const items = events.filter(makeMatch(filter, names, things, sentenceMaker(names, things)));
  const file = exportName(slug || "control-plane", filter, items, isAll);
  if (isAll)
    tell(`${file} has all ${items.length} events that match. Its times are UTC, its days this browser's.`);
  setCut(
    isAll
      ? ""
      : `${file} has not all: of the newest ${events.length} events${filter.to === "" ? "" : ` until ${filter.to}`}, ${items.length} match. For older ones choose earlier days, or read all from the terminal:`,
  );
  return { file, items, columns: columnsFor(names, things) };
}

/** As near to the top of the page as this, in pixels, new events come in by themselves. */
const nearTop = 40;

/** Events that come while the user reads further down wait until they are asked for. `key`: of the filters. */
function useHeld(found: readonly AuditEvent[], key: string) {
  const [held, setHeld] = useState<{ key: string; id: number }>();
  const newest = found[0]?.id;
  useEffect(() => {
    const look = () => {
      if (scrollY <= nearTop) setHeld(undefined);
      else if (newest !== undefined)
        setHeld((before) => (before?.key === key ? before : { key, id: newest }));
    };
    addEventListener("scroll", look, { passive: true });
    return () => removeEventListener("scroll", look);
  }, [key, newest]);
  const last = held?.key === key ? held.id : Number.POSITIVE_INFINITY;
  const shown = useMemo(() => found.filter(({ id }) => id <= last), [found, last]);
  const release = () => {
    setHeld(undefined);
    scrollTo(0, 0);
  };
  return { shown, newer: found.length - shown.length, release };
}

const dayMs = 86_400_000;

const fields = [
  ["actor", "Actor", "text"],
  ["type", "Type", "text"],
  ["subject", "Subject", "text"],
  ["from", "From", "date"],
  ["to", "To", "date"],
] as const;

type FiltersProps = { slug: string; filter: Filter; events: readonly AuditEvent[] };

/** The search, and the parts of the log. A button opens the fields for actor, type, subject and days. */
function Filters({ slug, filter, events }: FiltersProps) {
  const isOn = fields.some(([key]) => filter[key] !== "");
  const [isOpen, setOpen] = useState(isOn);
  const { data = [] } = useHours(slug);
  const failed = data
    .flatMap(({ types }) => Object.entries(types))
    .reduce((sum, [type, count]) => sum + (isFailure(type) ? count : 0), 0);
  const chip = (about: string, words: string, more: { sign?: "need"; count?: number } = {}) => {
    const isChosen = filter.about === about;
    return <Chip key={about} {...more} words={words} isOn={isChosen} href={hrefWith({ about })} />;
  };
  const types = useMemo(() => [...new Set(events.map(({ type }) => type))].sort(), [events]);
  const lastWeek = () => setQuery({ from: dayOf(Date.now() - 6 * dayMs), to: dayOf(Date.now()) });
  const clear = () => setQuery(Object.fromEntries(fields.map(([key]) => [key, undefined])));
  return (
    <>
      <div class="group scroll-x">
        <Search label="Search events" placeholder="Node, user, rule, hash…" />
        {chip("", "All")}
        {slug === "" ? null : Object.entries(parts).map(([part, [words]]) => chip(part, words))}
        {chip(failures, "Failures", { sign: "need", ...(slug === "" ? {} : { count: failed }) })}
        <span class="spring" />
        <Button icon="filter" isPressed={isOpen} onClick={() => setOpen(!isOpen)}>
          Actor, days
        </Button>
      </div>
      {isOpen ? (
        <div class="filters" role="group" aria-label="Filters">
          {fields.map(([key, label, type]) => (
            <Field key={key} label={label}>
              <input
                type={type}
                // Of an hour, the field shows the day.
                value={type === "date" ? filter[key].slice(0, 10) : filter[key]}
                list={key === "type" ? "event-types" : undefined}
                placeholder={key === "type" ? "node.*" : undefined}
                onInput={(event: Event) => setQuery({ [key]: valueOf(event) })}
              />
            </Field>
          ))}
          <datalist id="event-types">
            {types.map((type) => (
              <option key={type} value={type} />
            ))}
          </datalist>
          <Button onClick={lastWeek}>The last 7 days</Button>
          {isOn ? <Button onClick={clear}>Clear the filters</Button> : null}
        </div>
      ) : null}
    </>
  );
}
