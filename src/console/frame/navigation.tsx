// The column of navigation, and the keys that open pages.

import { useEffect, useLayoutEffect, useState } from "preact/hooks";
import { brand } from "../../brand.ts";
import { awaySince } from "../contact/api.ts";
import { isLive } from "../contact/live.ts";
import { isAdmin, me, organizations, shownOrganization, signOut, currentSlug } from "../contact/me.ts";
import { opened, organizationPages, staffPages, type Page } from "../pages.ts";
import { go, pathOf, segments } from "./router.ts";
import { unsaved } from "./unsaved.ts";
import { useNeeds } from "../needs/use-needs.ts";
import { useAction } from "../ui/form.tsx";
import { Avatar, Icon, Logo, Sign } from "../ui/icon.tsx";
import { Menu } from "../ui/menu.tsx";
import { valueOf } from "../ui/field.tsx";
import { Failure } from "../ui/parts.tsx";
import { Count } from "../ui/tag.tsx";

/** The segments of the pages about the network, which stand before those of the organization. */
const networkPages = ["", "nodes", "map", "access", "activity"];
/** On a phone, these are at the bottom; the others are behind More. */
const tabPages = networkPages.slice(0, 4);

export function Navigation() {
  const shown = shownOrganization.value;
  // On a phone, the column is a sheet that More opens.
  const [isOpen, setOpen] = useState(false);
  const at = segments.value.join("/");
  // Before the browser draws the next page below it.
  useLayoutEffect(() => setOpen(false), [at]);
  useKeys();
  const pages = shown === undefined ? [] : pagesOf(shown.slug, isAdmin(shown));
  const isTab = ({ segment }: Entry) => tabPages.includes(segment);
  const isMore = !pages.some((each) => each.isHere && isTab(each));
  return (
    <>
      <nav aria-label="Console" class={isOpen ? "side open" : "side"}>
        <Chooser />
        <button type="button" class="find" onClick={() => (opened.value = "palette")}>
          <Icon name="search" />
          Find<kbd>Ctrl K</kbd>
        </button>
        <Links entries={pages.filter(({ segment }) => networkPages.includes(segment))} />
        {shown === undefined ? null : (
          <>
            <h2>Organization</h2>
            <Links entries={pages.filter(({ segment }) => !networkPages.includes(segment))} />
          </>
        )}
        {me.value?.is_staff === true ? (
          <>
            <h2>Control plane</h2>
            <Links entries={staffEntries()} />
          </>
        ) : null}
        <Me isHere={at === "-/account"} />
      </nav>
      <nav aria-label="Pages" class="tabbar">
        <Links entries={pages.filter(isTab)} />
        <button
          type="button"
          aria-expanded={isOpen}
          aria-current={isMore && !isOpen ? "page" : undefined}
          onClick={() => setOpen(!isOpen)}
        >
          <Icon name="menu" />
          More
        </button>
      </nav>
    </>
  );
}

/** Pages that are not in the navigation, and the page in it that they belong to. */
const insideOf: Readonly<Record<string, string>> = {
  phones: "nodes",
  flows: "access",
  past: "access",
  webhooks: "alarms",
};

type Entry = Pick<Page, "title" | "icon"> & {
  segment: string;
  href: string;
  isHere: boolean;
  /** The slug of the organization whose needs are counted beside it. */
  counted?: string | undefined;
  isDraft?: boolean;
};

function pagesOf(slug: string, isForAdmin: boolean): Entry[] {
  return Object.entries(organizationPages)
    .filter(([, { isForAdmins }]) => isForAdmins !== true || isForAdmin)
    .map(([segment, { title, icon }]) => ({
      title,
      icon,
      segment,
      href: segment === "" ? pathOf(slug) : pathOf(slug, segment),
      isHere:
        currentSlug.value === slug &&
        (insideOf[segments.value[1] ?? ""] ?? segments.value[1] ?? "") === segment,
      counted: segment === "" && isForAdmin ? slug : undefined,
      isDraft: unsaved.value.includes(`${slug}/${segment}`),
    }));
}

const staffEntries = (): Entry[] =>
  Object.entries(staffPages).map(([segment, { title, icon }]) => ({
    title,
    icon,
    segment,
    href: pathOf("-", segment),
    isHere: segments.value[0] === "-" && segments.value[1] === segment,
  }));

const Links = ({ entries }: { entries: readonly Entry[] }) => (
  <ul>
    {entries.map(({ title, icon = "right", href, isHere, counted, isDraft }) => (
      <li key={href}>
        <a href={href} title={title} aria-current={isHere ? "page" : undefined}>
          <Icon name={icon} />
          {title} {counted === undefined ? null : <NeedsCount key={counted} />}
          {isDraft === true ? <span class="count soft">draft</span> : null}
        </a>
      </li>
    ))}
  </ul>
);

/** Who is signed in, and whether what the page shows is live. */
function Me({ isHere }: { isHere: boolean }) {
  const out = useAction(signOut);
  const email = me.value?.email ?? "";
  const isCurrent = isLive.value && awaySince.value === undefined;
  return (
    <div class="me">
      <Avatar name={email} />
      <div>
        <a class="cut" href={pathOf("-", "account")} title={`Account: ${email}`}>
          <bdi>{email}</bdi>
        </a>
        <small>
          <Sign name={isCurrent ? "on" : "off"} />
          {isCurrent ? "Live" : "Not live"}
        </small>
      </div>
      <Menu label="Your account" isSmall={true} isUp={true}>
        <a href={pathOf("-", "account")} aria-current={isHere ? "page" : undefined}>
          Account
        </a>
        <button type="button" class="ghost" onClick={() => (opened.value = "keys")}>
          Keys
        </button>
        <button type="button" class="ghost" onClick={out.run}>
          Sign out
        </button>
      </Menu>
      {out.error === undefined ? null : (
        <div role="alert">
          You are still signed in.
          <Failure error={out.error} />
        </div>
      )}
    </div>
  );
}

/** The requests for the number of needs wait this long: the page itself loads first. */
const countAfterMs = 1000;

/**
 * The number of needs (needs/need-kinds.ts) of the organization of the navigation, read a moment after the page. Zero is not shown.
 * Its key is the slug, so that another organization begins with no number.
 */
function NeedsCount() {
  const [isTime, setTime] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setTime(true), countAfterMs);
    return () => clearTimeout(timer);
  }, []);
  return isTime ? <ReadCount /> : null;
}

function ReadCount() {
  const { count, isUrgent } = useNeeds({ isCalm: true });
  return count === 0 ? null : <Count count={count} words="waiting for you" isSoft={!isUrgent} />;
}

/** Leads to Overview; with several organizations, chooses one. */
function Chooser() {
  const all = organizations.value;
  const shown = shownOrganization.value;
  const [only] = all;
  if (all.length < 2)
    return (
      <a class="org" href={pathOf(...(only === undefined ? [] : [only.slug]))}>
        <Logo />
        <bdi class="cut">{only?.name ?? brand.title}</bdi>
      </a>
    );
  return (
    <span class="org">
      <Logo />
      <select
        aria-label="Organization"
        value={shown?.slug ?? ""}
        onChange={(event: Event) => go(pathOf(valueOf(event)))}
      >
        {shown === undefined ? <option value="">Choose an organization</option> : null}
        {all.map((each) => (
          <option key={each.slug} value={each.slug}>
            {each.name}
          </option>
        ))}
      </select>
    </span>
  );
}

/** The keys that the list of the palette names. Dialogs have their own. */
function useKeys(): void {
  // Register before the browser draws: a key that is pressed as soon as the page appears must not be lost.
  useLayoutEffect(() => {
    // The key before was g: a letter now opens its page.
    let isAwaiting = false;
    const press = (event: KeyboardEvent) => {
      const isDialogOpen = document.querySelector("dialog[open]") !== null;
      if ((event.ctrlKey || event.metaKey) && event.key === "k" && !isDialogOpen) {
        event.preventDefault();
        opened.value = "palette";
        return;
      }
      if (event.ctrlKey || event.metaKey || event.altKey || isDialogOpen) return;
      leaveSearch(event);
      if (isTyping(event.target)) return;
      if (event.key === "?") opened.value = "keys";
      else if (event.key === "j" || event.key === "k") stepRow(event.key === "j" ? 1 : -1);
      else if (event.key === "/") {
        event.preventDefault();
        document.querySelector<HTMLInputElement>(search)?.focus();
      } else if (isAwaiting) {
        // The page of nodes had the letter m before.
        const pressed = event.key === "m" ? "n" : event.key;
        const found = Object.entries(organizationPages).find(([, { letter }]) => letter === pressed);
        const slug = shownOrganization.peek()?.slug;
        if (found !== undefined && slug !== undefined)
          go(found[0] === "" ? pathOf(slug) : pathOf(slug, found[0]));
      }
      isAwaiting = event.key === "g";
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
}

/** Selectors: searches, what in a row takes the focus, and rows that have such a thing. */
const search = "input[type=search]";
const pressable = "a, button, summary";
const row = `:is(.body [role=row], tbody tr):has(${pressable})`;

/** Keys in a search: to the first row of its list, or out of it. A search in a form has the keys of the form. */
function leaveSearch(event: KeyboardEvent): void {
  const field = event.target;
  if (!(field instanceof HTMLInputElement) || !field.matches(search) || field.form || event.isComposing)
    return;
  // In a search with text, the browser empties it. The next Escape leaves it.
  if (event.key === "Escape" && field.value === "") field.blur();
  if (event.key !== "Enter" && event.key !== "ArrowDown") return;
  // Enter would open the row, too.
  event.preventDefault();
  // After the search of a list without rows comes the next search.
  const all = [...document.querySelectorAll(`${search}, ${row}`)];
  all[all.indexOf(field) + 1]?.querySelector<HTMLElement>(pressable)?.focus();
}

/** Moves the focus to the next or the previous row that has a link or a button. */
function stepRow(step: 1 | -1): void {
  const rows = [...document.querySelectorAll(row)].filter((each) => each.closest("aside") === null);
  const focused = rows.findIndex((each) => each.contains(document.activeElement));
  // Without one, from the row that is open beside the list.
  const at = focused === -1 ? rows.findIndex((each) => each.querySelector("[aria-current]")) : focused;
  rows[at === -1 ? 0 : Math.max(0, Math.min(rows.length - 1, at + step))]
    ?.querySelector<HTMLElement>(pressable)
    ?.focus();
}

function isTyping(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLElement &&
    (target.isContentEditable || target.matches("input:not([type=checkbox]), select, textarea"))
  );
}
