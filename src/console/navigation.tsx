// The column of navigation, and the keys that open pages.

import { useEffect, useLayoutEffect, useState } from "preact/hooks";
import { isAdmin, me, organizations, shownOrganization, signOut, slug } from "./me.ts";
import { opened } from "./palette.tsx";
import { organizationPages, staffPages } from "./pages.ts";
import { go, pathOf, segments } from "./router.ts";
import { unsaved } from "./unsaved.ts";
import { useNeeds } from "./use-needs.ts";
import { useAction } from "./ui/form.tsx";
import { Failure, valueOf } from "./ui/parts.tsx";

export function Navigation() {
  const shown = shownOrganization.value;
  // In a narrow window, the pages are behind a button.
  const [isOpen, open] = useState(false);
  const at = segments.value.join("/");
  // Before the browser draws the next page below it.
  useLayoutEffect(() => open(false), [at]);
  useKeys();
  const out = useAction(signOut);
  return (
    <nav aria-label="Console">
      <div class="bar">
        <Chooser />
        <button
          type="button"
          class="menu-button"
          aria-expanded={isOpen}
          aria-controls="pages"
          onClick={() => open(!isOpen)}
        >
          Menu {shown !== undefined && isAdmin(shown) ? <Count key={shown.slug} isShort={true} /> : null}
        </button>
      </div>
      <div id="pages" class={isOpen ? "open" : ""}>
        {shown === undefined ? null : <Pages own={shown.slug} isForAdmin={isAdmin(shown)} />}
        {me.value?.is_staff === true ? <Staff /> : null}
        <div class="who">
          <bdi class="quiet">{me.value?.email}</bdi>
          <a href={pathOf("-", "account")} aria-current={at === "-/account" ? "page" : undefined}>
            Account
          </a>
          <button type="button" class="plain" onClick={out.run}>
            Sign out
          </button>
          {out.error === undefined ? null : (
            <>
              You are still signed in.
              <Failure error={out.error} />
            </>
          )}
          <small class="hint">
            <kbd>Ctrl K</kbd> find a page or machine, <kbd>/</kbd> search this page, <kbd>?</kbd> keys
          </small>
        </div>
      </div>
    </nav>
  );
}

function Pages({ own, isForAdmin }: { own: string; isForAdmin: boolean }) {
  return (
    <ul>
      {Object.entries(organizationPages).map(([segment, { title, isForAdmins }]) => {
        if (isForAdmins === true && !isForAdmin) return null;
        const isHere =
          slug.value === own && (segments.value[1]?.replace("phones", "machines") ?? "") === segment;
        const hasCount = segment === "" && isForAdmin;
        return (
          <li key={segment}>
            <a
              href={segment === "" ? pathOf(own) : pathOf(own, segment)}
              aria-current={isHere ? "page" : undefined}
            >
              {title}
              {hasCount ? <Count key={own} /> : null}
              {unsaved.value.includes(`${own}/${segment}`) ? " (draft)" : null}
            </a>
          </li>
        );
      })}
    </ul>
  );
}

/** Load the page first. */
const countAfterMs = 1000;

/** The number of things that need attention. Zero is not shown. */
function Count({ isShort = false }: { isShort?: boolean }) {
  const [isTime, setTime] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setTime(true), countAfterMs);
    return () => clearTimeout(timer);
  }, []);
  return isTime ? <Counted isShort={isShort} /> : null;
}

function Counted({ isShort }: { isShort: boolean }) {
  const { count } = useNeeds({ isCalm: true });
  if (count === 0) return null;
  const words = (
    <>
      {count > 99 ? "99+" : count}
      <span class="unseen"> waiting for you</span>
    </>
  );
  return isShort ? (
    <>({words})</>
  ) : (
    <span class="count" title={`${count} waiting for you`}>
      {words}
    </span>
  );
}

/** Links for staff, whichever organization is shown. */
function Staff() {
  return (
    <ul aria-label="Control plane">
      {Object.entries(staffPages).map(([segment, { title }]) => {
        const isHere = segments.value[0] === "-" && segments.value[1] === segment;
        return (
          <li key={segment}>
            <a href={pathOf("-", segment)} aria-current={isHere ? "page" : undefined}>
              {title}
            </a>
          </li>
        );
      })}
    </ul>
  );
}

function Chooser() {
  const all = organizations.value;
  if (all.length < 2) {
    const [only] = all;
    if (only === undefined) return null;
    return (
      <a class="chooser" href={pathOf(only.slug)}>
        <bdi>{only.name}</bdi>
      </a>
    );
  }
  return (
    <select
      class="chooser"
      aria-label="Organization"
      value={shownOrganization.value?.slug ?? ""}
      onChange={(event: Event) => go(pathOf(valueOf(event)))}
    >
      {shownOrganization.value === undefined ? <option value="">Choose an organization</option> : null}
      {all.map((each) => (
        <option key={each.slug} value={each.slug}>
          {each.name}
        </option>
      ))}
    </select>
  );
}

/** The keys that the list of the palette names. Dialogs have their own. */
function useKeys(): void {
  // Registered before the browser draws, so that keys are not lost that are pressed as soon as the page appears.
  useLayoutEffect(() => {
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
        const found = Object.entries(organizationPages).find(([, { letter }]) => letter === event.key);
        const own = shownOrganization.peek()?.slug;
        if (found !== undefined && own !== undefined)
          go(found[0] === "" ? pathOf(own) : pathOf(own, found[0]));
      }
      isAwaiting = event.key === "g";
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
}

const search = "input[type=search]";
const to = "a, button";
const row = `:is(.body [role=row], tbody tr):has(${to})`;

/** Keys in a search: to the first row of its list, or out of it. A search in a form has the keys of the form. */
function leaveSearch(event: KeyboardEvent): void {
  const field = event.target;
  if (!(field instanceof HTMLInputElement) || !field.matches(search) || field.form || event.isComposing)
    return;
  // The browser empties it before.
  if (event.key === "Escape" && field.value === "") field.blur();
  if (event.key !== "Enter" && event.key !== "ArrowDown") return;
  // Enter would open the row, too.
  event.preventDefault();
  // After the search of a list without rows comes the next search.
  const all = [...document.querySelectorAll(`${search}, ${row}`)];
  all[all.indexOf(field) + 1]?.querySelector<HTMLElement>(to)?.focus();
}

/** Moves the focus to the next or the previous row that has a link or a button. */
function stepRow(step: 1 | -1): void {
  const rows = [...document.querySelectorAll(row)];
  const at = rows.findIndex((each) => each.contains(document.activeElement));
  rows[at === -1 ? 0 : Math.max(0, Math.min(rows.length - 1, at + step))]
    ?.querySelector<HTMLElement>(to)
    ?.focus();
}

function isTyping(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLElement &&
    (target.isContentEditable || target.matches("input:not([type=checkbox]), select, textarea"))
  );
}
