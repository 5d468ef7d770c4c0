"""`tf.image`: images."""

from __future__ import annotations

from typing import Final

from stratagem.tf.namespace import lazy

_NAMES: Final = {
    "ResizeMethod": "stratagem.tf.tensors.pictures:ResizeMethod",
    "adjust_brightness": "stratagem.tf.tensors.colours:adjust_brightness",
    "adjust_contrast": "stratagem.tf.tensors.colours:adjust_contrast",
    "adjust_gamma": "stratagem.tf.tensors.colours:adjust_gamma",
    "adjust_hue": "stratagem.tf.tensors.colours:adjust_hue",
    "adjust_saturation": "stratagem.tf.tensors.colours:adjust_saturation",
    "central_crop": "stratagem.tf.tensors.pictures:central_crop",
    "convert_image_dtype": "stratagem.tf.tensors.colours:convert_image_dtype",
    "crop_to_bounding_box": "stratagem.tf.tensors.pictures:crop_to_bounding_box",
    "decode_image": "stratagem.io:decode_image",
    "decode_jpeg": "stratagem.io:decode_jpeg",
    "decode_png": "stratagem.io:decode_png",
    "extract_patches": "stratagem.tf.tensors.pictures:extract_patches",
    "flip_left_right": "stratagem.tf.tensors.pictures:flip_left_right",
    "flip_up_down": "stratagem.tf.tensors.pictures:flip_up_down",
    "grayscale_to_rgb": "stratagem.tf.tensors.colours:grayscale_to_rgb",
    "hsv_to_rgb": "stratagem.tf.tensors.colours:hsv_to_rgb",
    "image_gradients": "stratagem.tf.tensors.pictures:image_gradients",
    "pad_to_bounding_box": "stratagem.tf.tensors.pictures:pad_to_bounding_box",
    "per_image_standardization": "stratagem.tf.tensors.pictures:per_image_standardization",
    "psnr": "stratagem.tf.tensors.pictures:psnr",
    "random_brightness": "stratagem.tf.tensors.colours:random_brightness",
    "random_contrast": "stratagem.tf.tensors.colours:random_contrast",
    "random_crop": "stratagem.tf.tensors.pictures:random_crop",
    "random_flip_left_right": "stratagem.tf.tensors.pictures:random_flip_left_right",
    "random_flip_up_down": "stratagem.tf.tensors.pictures:random_flip_up_down",
    "random_hue": "stratagem.tf.tensors.colours:random_hue",
    "random_saturation": "stratagem.tf.tensors.colours:random_saturation",
    "resize": "stratagem.tf.tensors.pictures:resize",
    "resize_with_crop_or_pad": "stratagem.tf.tensors.pictures:resize_with_crop_or_pad",
    "resize_with_pad": "stratagem.tf.tensors.pictures:resize_with_pad",
    "rgb_to_grayscale": "stratagem.tf.tensors.colours:rgb_to_grayscale",
    "rgb_to_hsv": "stratagem.tf.tensors.colours:rgb_to_hsv",
    "rgb_to_yiq": "stratagem.tf.tensors.colours:rgb_to_yiq",
    "rgb_to_yuv": "stratagem.tf.tensors.colours:rgb_to_yuv",
    "rot90": "stratagem.tf.tensors.pictures:rot90",
    "sobel_edges": "stratagem.tf.tensors.pictures:sobel_edges",
    "stateless_random_brightness": "stratagem.tf.tensors.colours:stateless_random_brightness",
    "stateless_random_contrast": "stratagem.tf.tensors.colours:stateless_random_contrast",
    "stateless_random_crop": "stratagem.tf.tensors.pictures:stateless_random_crop",
    "stateless_random_flip_left_right": "stratagem.tf.tensors.pictures:stateless_random_flip_left_right",
    "stateless_random_flip_up_down": "stratagem.tf.tensors.pictures:stateless_random_flip_up_down",
    "stateless_random_hue": "stratagem.tf.tensors.colours:stateless_random_hue",
    "stateless_random_saturation": "stratagem.tf.tensors.colours:stateless_random_saturation",
    "total_variation": "stratagem.tf.tensors.pictures:total_variation",
    "transpose": "stratagem.tf.tensors.pictures:transpose",
    "yiq_to_rgb": "stratagem.tf.tensors.colours:yiq_to_rgb",
    "yuv_to_rgb": "stratagem.tf.tensors.colours:yuv_to_rgb",
}
"""Where each name lives."""

__getattr__, __dir__ = lazy(__name__, _NAMES)
