//! The extension points and their names in the file.

use supercargo_framework::plugin::ExtensionPoints;

/// Declares the points with their names and the fields of [`ExtensionPoints`].
macro_rules! points {
    ($($point:ident $name:literal $field:ident,)*) => {
        /// An extension point that a profile can configure.
        #[allow(clippy::enum_variant_names)] // upstream's name
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(super) enum ConfigPoint {
            /// Every point that a plugin implements.
            MultiPoint,
            $($point,)*
        }

        impl ConfigPoint {
            /// Every point.
            pub(super) const ALL: &[ConfigPoint] = &[ConfigPoint::MultiPoint, $(ConfigPoint::$point,)*];

            /// The name in the file.
            pub(super) const fn name(self) -> &'static str {
                match self {
                    ConfigPoint::MultiPoint => "multiPoint",
                    $(ConfigPoint::$point => $name,)*
                }
            }

            /// Whether a plugin with these points implements this one.
            pub(super) fn is_in(self, points: &ExtensionPoints) -> bool {
                match self {
                    ConfigPoint::MultiPoint => true,
                    $(ConfigPoint::$point => points.$field.is_some(),)*
                }
            }
        }
    };
}

points! {
    PreEnqueue "preEnqueue" pre_enqueue,
    QueueSort "queueSort" queue_sort,
    PreFilter "preFilter" pre_filter,
    Filter "filter" filter,
    PostFilter "postFilter" post_filter,
    PlacementGenerate "placementGenerate" placement_generate,
    PlacementScore "placementScore" placement_score,
    PodGroupPostFilter "podGroupPostFilter" pod_group_post_filter,
    PreScore "preScore" pre_score,
    Score "score" score,
    Reserve "reserve" reserve,
    Permit "permit" permit,
    PreBind "preBind" pre_bind,
    Bind "bind" bind,
    PostBind "postBind" post_bind,
}
