// A menu: a button that opens a list of actions below it. Escape, a click elsewhere, or an action closes it.

import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import type { IconName } from "./drawings.ts";
import { Icon } from "./icon.tsx";

type MenuProps = {
  label: string;
  icon?: IconName;
  /** Words on the button instead of the icon alone. */
  words?: string;
  isSmall?: boolean;
  /** Opens upwards, for a button at the bottom. */
  isUp?: boolean;
  children: ComponentChildren;
};

export function Menu({ label, icon = "more", words, isSmall = false, isUp = false, children }: MenuProps) {
  const place = useRef<HTMLDetailsElement>(null);
  useEffect(() => {
    const close = () => void (place.current !== null && (place.current.open = false));
    const press = (event: KeyboardEvent) => {
      if (event.key !== "Escape" || place.current?.open !== true) return;
      const hadFocus = place.current.contains(document.activeElement);
      close();
      if (hadFocus) place.current.querySelector("summary")?.focus();
    };
    const click = ({ target }: Event) => {
      const isOnMenu = target instanceof Node && place.current?.contains(target) === true;
      // The fields of a menu keep it open.
      const isAction = target instanceof Element && target.closest("a, button") !== null;
      if (!isOnMenu || isAction) close();
    };
    document.addEventListener("click", click);
    document.addEventListener("keydown", press);
    return () => {
      document.removeEventListener("click", click);
      document.removeEventListener("keydown", press);
    };
  }, []);
  return (
    <details class={isUp ? "menu up" : "menu"} ref={place}>
      <summary
        class={`button ghost ${isSmall ? "small" : ""} ${words === undefined ? "icon" : ""}`}
        aria-label={words === undefined ? label : undefined}
        title={label}
      >
        <Icon name={icon} />
        {words}
      </summary>
      <div class="menu-list">{children}</div>
    </details>
  );
}
