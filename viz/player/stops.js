/* A talk: the list of prepared stops, kept in this browser, in the address and as a small file.

   DominoPlayer.stops (one for the page, whatever number of players it has):
   list · at (the stop shown last, −1: none) · add(stop) · move(from, to) · note(k, text) · remove(k) · clear()
   replace(list) · file() -> text · open(text) · mine()/keep(): when the list came with a link. Event: "change".

   A list that came with a link does not touch the visitor's own: edits then go to the address alone, until keep(). */
(function (DP) {
  "use strict";
  const STORE = "dt-stops";
  const SCHEMA = "dominotree.stops";
  const { cleanStops, pack, unpack, MOST_STOPS } = DP.link;

  function stored() {
    try {
      return cleanStops(JSON.parse(localStorage.getItem(STORE)) || []);
    } catch {
      return []; // private window, or not ours: begin anew
    }
  }

  class Stops extends EventTarget {
    constructor() {
      super();
      this.list = stored();
      this.at = -1;
      this.borrowed = false; // came with a link
      this.trouble = ""; // why the link's stops could not be read
      this.turn = 0;
      this.ready = this.follow();
      addEventListener("popstate", ({ state }) => {
        if (!state?.domino) this.ready = this.follow();
        else if (this.text !== undefined) DP.address.talk({ stops: this.text }); // Back is about views, not about edits
      });
      addEventListener("storage", (event) => {
        if (event.key !== STORE || this.borrowed) return;
        this.list = stored(); // another window of this browser edited it
        this.changed(false);
      });
    }

    /** Take in the stops of the address, if it has other ones than those shown. */
    async follow() {
      const { stops: text } = DP.address.view;
      if (!text || text === this.text) return;
      const turn = ++this.turn;
      try {
        const list = await unpack(text);
        if (turn !== this.turn) return;
        this.text = text;
        this.trouble = "";
        this.borrowed = JSON.stringify(bare(list)) !== JSON.stringify(bare(stored()));
        this.list = this.borrowed ? list : stored();
        this.at = -1;
      } catch (error) {
        if (turn !== this.turn) return;
        this.trouble = error.message;
      }
      this.dispatchEvent(new Event("change"));
    }

    /** After every edit: keep it, tell it, put it into the address. */
    changed(edited = true) {
      this.trouble = "";
      if (edited && !this.borrowed) this.save();
      this.at = Math.min(this.at, this.list.length - 1);
      this.dispatchEvent(new Event("change"));
      const turn = ++this.turn;
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.use(turn), 250);
    }

    /** Put the list into the address: from its first edit or use on, so that a plain visit has a plain address. */
    async use(turn = ++this.turn) {
      const text = await pack(this.list);
      if (turn !== this.turn) return;
      this.text = text;
      DP.address.talk({ stops: text });
    }

    save() {
      try {
        localStorage.setItem(STORE, JSON.stringify(this.list));
      } catch {
        /* private window or full: the list lasts as long as the page, and the address has it */
      }
    }

    add(stop) {
      if (this.list.length >= MOST_STOPS) throw new Error(`A talk has at most ${MOST_STOPS} stops.`);
      this.list.push(...cleanStops([stop]));
      this.at = this.list.length - 1;
      this.changed();
      return this.at;
    }

    move(from, to) {
      if (to < 0 || to >= this.list.length || from === to) return;
      const current = this.list[this.at];
      this.list.splice(to, 0, ...this.list.splice(from, 1));
      this.at = this.list.indexOf(current);
      this.changed();
    }

    note(k, text) {
      this.list[k].note = text;
      this.changed();
    }

    remove(k) {
      this.list.splice(k, 1);
      if (this.at >= k) this.at--;
      this.changed();
    }

    clear() {
      this.list = [];
      this.at = -1;
      this.changed();
    }

    replace(list) {
      this.list = cleanStops(list);
      this.at = -1;
      this.changed();
    }

    /** The visitor's own list again, instead of the one that came with the link. */
    mine() {
      this.borrowed = false;
      this.list = stored();
      this.at = -1;
      this.changed(false);
    }

    /** The list that came with the link becomes the visitor's own. */
    keep() {
      this.borrowed = false;
      this.changed();
    }

    /** How many stops the visitor's own list has. */
    get own() {
      return stored().length;
    }

    /** The list as a small JSON file. */
    file() {
      return JSON.stringify({ schema: SCHEMA, version: 1, stops: this.list }, null, 1) + "\n";
    }

    /** Take in such a file. Throws Error with one sentence. */
    open(text) {
      let found;
      try {
        found = JSON.parse(text);
      } catch {
        throw new Error("This file is not JSON.");
      }
      if (!found || found.schema !== SCHEMA) throw new Error("This file is not a list of stops.");
      if (found.version > 1) throw new Error(`This list of stops has version ${found.version}; this page reads version 1.`);
      this.replace(found.stops);
    }
  }

  /** What two lists are compared by: their titles are only decoration. */
  const bare = (list) => list.map(({ title, ...stop }) => stop);

  DP.stops = new Stops();
})((window.DominoPlayer = window.DominoPlayer || {}));
