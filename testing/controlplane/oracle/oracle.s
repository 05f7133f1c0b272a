// Functions without bodies need a file like this one: pickOneNodeForPreemption is linked to.
